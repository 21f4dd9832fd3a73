// Which drafted tokens the target keeps, and the token it puts after them: three rules, each in a file of its own. Pure
// functions of logits and random numbers.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/token_tree.h"
#include "model/model.h"
#include "sampling/random_stream.h"
#include "sampling/token_chooser.h"

namespace pilotfish {

// What a verification pass gave.
struct Verification {
  const TokenTree& tree;
  const Logits& target;             // row 0 follows the sequence, row i + 1 the token i of the tree
  int32_t num_ids;                  // ids from here on are padding of the vocabulary and never chosen
  std::span<const int32_t> tokens;  // the sequence so far
  TokenChooser& chooser;
};

// A path from the root down.
struct Accepted {
  static constexpr int32_t kNoToken = TokenChooser::kNoToken;

  std::array<int32_t, TokenTree::kMaxTokens> path;  // indices of the tree's tokens
  int32_t num_accepted = 0;
  // After the path: the correction of rejected tokens, or a bonus where none had been drafted. Of no meaning after a
  // token that ends the text. kNoToken: none may follow a path that has tokens; where it has none, accepting fails with
  // PF_NO_TOKEN_LEFT, so that a step gives what it has before the next one fails.
  int32_t next_id = 0;

  int32_t last() const noexcept { return num_accepted == 0 ? TokenTree::kRoot : path[num_accepted - 1]; }
};

// The default, lossless (accept.cpp): a drafted token is kept if it is the one that the target chooses in its place.
// The choice (TokenChooser::choose) depends on the model, the prefix, the options and the seed, and never on what was
// drafted: so the text of any source, tree or batch is that of plain decoding, token for token. A draft that chooses
// with the same noise from its own scores names the target's token with a probability of at least (1 - d) / (1 + d),
// where d is the total variation between the two distributions: Daliri, Musco and Suresh, "Coupling without
// communication and drafter-invariant speculative decoding", 2024; for lists of candidates Rowan, Phan and Khisti,
// "List-level distribution coupling with applications to speculative decoding and lossy compression", 2025.
Accepted accept_equal(const Verification& verification);

// The classical rule, lossless in distribution (accept_rejection.cpp): the output follows the target's distribution,
// but is not plain decoding's for the same seed. A chain's token is kept with probability 1 - d on average.
// `draft` holds the distributions that the tree's draws name; `scratch` the target's in turn.
Accepted accept_rejection(const Verification& verification, std::span<const Distribution> draft,
                          const RandomStream& random, Distribution& scratch);

struct TypicalOptions {
  float epsilon = 0;  // 0: off
  float delta = 0;
};

// Lossy (accept_typical.cpp): Cai et al., "Medusa: Simple LLM inference acceleration framework with multiple decoding
// heads", 2024, section 2.3.1, typical acceptance. A token is kept if the target gives it a probability above
// min(epsilon, delta * exp(-entropy)), and of the paths kept the longest is taken, of equal ones the one that the
// target finds likelier. The token after it is the target's choice.
Accepted accept_typical(const Verification& verification, const TypicalOptions& options, Distribution& scratch);

}  // namespace pilotfish
