// Drafts a token tree with a small model, or with a head that has a cache: one pass a level.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft/draft_rows.h"
#include "draft/drafter.h"
#include "draft/likeliest.h"

namespace pilotfish {

class ModelDrafter : public Drafter {
 public:
  // Ids from num_ids on are padding, and ids that the model does not score are none of its logits: neither is drafted.
  // `rows` must outlive the drafter.
  ModelDrafter(DraftRows& rows, int32_t num_ids);

  // Catches up with the sequence and drafts. Each token's children are those that the draft would choose: the likeliest
  // when decoding is greedy, else the best under the noise of their position, which is the target's as well
  // (Sampler::rank). For acceptance by rejection fixed shapes draw them, without replacement. A dynamic shape is
  // grown as in EAGLE-2 (Li et al., "EAGLE-2: Faster inference of language models with dynamic draft trees", 2024,
  // section 4): at each level the likeliest paths are continued, and the likeliest of all paths are kept. Tokens that
  // other drafters put in the tree keep their places; those that end a level are continued too. Afterwards the sequence
  // is in the draft's cache, and behind it the tokens that have a draft_row.
  bool propose(const DraftRequest& request, Draft& out) override;

 private:
  struct Candidate {
    int32_t id;
    int32_t parent_row;  // draft_row of its parent, which is not renumbered as indices are
    float prob;
    float path_prob;
    Draw draw;
    Guess guess;
    int32_t shape_token;  // of a sparse shape
  };

  // A child that was found in a row of logits.
  struct Picked {
    int32_t id;
    float confidence;
  };

  static Candidate candidate(const TokenTree& tree, int32_t parent, int32_t id, float prob);
  // Adds the children that the draft thinks of after the tree's token `parent` to the candidates.
  void expand(const DraftRequest& request, const Logits& rows, int32_t row, int32_t parent, Draft& out);
  // No children, as the draft scores no token that may follow, or gives no numbers.
  static void note_failure(std::span<const float> logits, Draft& out) noexcept;
  // Says which tokens of a sparse shape the candidates from `first` on are, the children of the tree's token `parent`.
  void place(const TreeShape& shape, int32_t parent, size_t first);
  void draw_children(const DraftRequest& request, std::span<const float> row, const Prefix& prefix, int32_t parent,
                     int32_t count, Draft& out);
  void pick(std::span<const float> scores, std::span<const int32_t> ids, float peak_prob, int32_t count);
  void pick(std::span<const Ranked> best, float temperature, int32_t count);
  void pick(const LikelyRow& found);
  // Adds the first `count` of those picked.
  void add_picked(const DraftRequest& request, int32_t parent, int32_t count, const TokenTree& tree);
  // The logits in the order of token ids; minus infinity for tokens that the model does not score.
  std::span<const float> by_token(std::span<const float> logits);
  // Leaves the candidates that the tree does not have yet, the likeliest paths first and no more than it should get.
  void sift(TokenTree& tree);
  // Moves the candidates of a level into the tree.
  void settle(const TreeShape& shape, TokenTree& tree);
  // Gives rows of the draft's cache to the tokens of this depth that are worth continuing, and leaves them in `level_`.
  void choose_level(const DraftRequest& request, int32_t depth, Draft& out);

  DraftRows& rows_;
  const int32_t num_ids_;
  Likeliest likeliest_;
  std::vector<float> row_;              // [num_ids] where the model's logits are not in the order of token ids
  std::vector<Candidate> candidates_;   // of one level
  std::vector<Picked> picked_;          // the likeliest first
  const float* picked_from_ = nullptr;  // the row whose children they are, whatever the path before it; or nullptr
  std::vector<int32_t> level_;          // the tree's tokens that the next pass continues
  std::vector<float> path_probs_;
  std::array<int32_t, TokenTree::kMaxTokens> shape_tokens_;  // of the tree's tokens, where the shape is sparse
  int32_t num_rows_ = 0;                                     // drafted tokens in the cache
};

}  // namespace pilotfish
