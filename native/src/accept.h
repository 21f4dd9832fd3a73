// Which drafted tokens the target keeps, and the token it puts after them. Pure functions of logits and random numbers.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/model.h"
#include "sampling/random_stream.h"
#include "sampling/token_chooser.h"
#include "tree/token_tree.h"

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
  static constexpr int32_t kNoToken = -1;

  std::array<int32_t, TokenTree::kMaxTokens> path;  // indices of the tree's tokens
  int32_t num_accepted = 0;
  // After the path: the correction of rejected tokens, or a bonus where none had been drafted. Of no meaning after a
  // token that ends the text. kNoToken: none may follow a path that has tokens; where it has none, accepting fails with
  // PF_NO_TOKEN_LEFT, so that a step gives what it has before the next one fails.
  int32_t next_id = 0;

  int32_t last() const noexcept { return num_accepted == 0 ? TokenTree::kRoot : path[num_accepted - 1]; }
};

// The path that plain decoding would take. A tie goes to the lowest id, as there.
Accepted accept_greedy(const Verification& verification);

// Lossless multi-step speculative sampling: Leviathan et al., "Fast inference from transformers via speculative
// decoding", 2023, and Chen et al., "Accelerating large language model decoding with speculative sampling", 2023, for a
// chain; Miao et al., "SpecInfer", 2024, algorithm 2, for trees, here with siblings drawn without replacement.
//
// At a token with drawn children x1, x2, ... let p1 = p be the target's distribution, and q1, q2, ... what each child
// was drawn from: its draft's distribution without its elder siblings, renormalised. They are tried in turn: child i is
// kept with probability min(1, pi(xi) / qi(xi)), or else p(i+1) is max(pi - qi, 0), renormalised. When none is left the
// token is drawn from what p has become. The outcome is distributed as p: given what was drawn before, xi has
// distribution qi, so by the argument for a chain [Leviathan, appendix A.1] keeping xi or else drawing from p(i+1) is
// drawing from pi; by induction from the last child to the first, the whole is drawing from p1. It does not matter how
// many children there are, of which drafts or temperatures each qi is, nor what was drawn below the siblings, as long
// as nobody looks at xi before deciding that it is to be in the tree. A sibling that was rejected has pi = 0 from then
// on, so that a token is never tried twice.
//
// A certain child, one that its drafter named without drawing, has the qi that is 1 at xi: it is kept with probability
// pi(xi), or else pi(xi) becomes 0. Where all children that are left are certain, this is the same as to draw from pi
// and look whether a child was drawn, which is what happens: a tree of certain tokens gives, seed by seed, the tokens
// of plain decoding.
//
// `draft` holds the distributions that the tree's draws name; `scratch` the target's in turn.
Accepted accept_sampled(const Verification& verification, std::span<const Distribution> draft,
                        const RandomStream& random, Distribution& scratch);

struct TypicalOptions {
  float epsilon = 0;  // 0: off
  float delta = 0;
};

// Lossy: Cai et al., "Medusa: Simple LLM inference acceleration framework with multiple decoding heads", 2024, section
// 2.3.1, typical acceptance. A token is kept if the target gives it a probability above
// min(epsilon, delta * exp(-entropy)), and of the paths kept the longest is taken, of equal ones the one that the
// target finds likelier. The token after it is drawn from the target.
Accepted accept_typical(const Verification& verification, const TypicalOptions& options, const RandomStream& random,
                        Distribution& scratch);

}  // namespace pilotfish
