// Drafts a token tree with a small model, or with a head that has a cache: one pass a level.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "draft/draft_rows.h"
#include "draft/drafter.h"
#include "draft/likeliest.h"
#include "model/shared_pass.h"

namespace pilotfish {

class ModelDrafter : public Drafter {
 public:
  // Ids from num_ids on are padding, and ids that the model does not score are none of its logits: neither is drafted.
  // `rows` must outlive the drafter. At most `most_together` requests draft together.
  ModelDrafter(DraftRows& rows, int32_t num_ids, int32_t most_together = 1);

  // Catches up with the sequence and drafts. Each token's children are those that the draft would choose: the likeliest
  // when decoding is greedy, else the best under the noise of their position, which is the target's as well
  // (Sampler::rank). For acceptance by rejection a chain draws them. A tree is grown as in EAGLE-2 (Li et al.,
  // "EAGLE-2: Faster inference of language models with dynamic draft trees", 2024, section 4): at each level the
  // likeliest paths are continued, and the likeliest of all paths are kept. Tokens that other drafters put in the tree
  // keep their places; those that end a level are continued too. Afterwards the sequence is in the draft's cache, and
  // behind it the tokens that have a draft_row.
  bool propose(const DraftRequest& request, Draft& out) override;
  bool shares_passes() const noexcept override { return rows_.shares_passes(); }
  // A level of all is a pass, or several where one has no room for all.
  void propose(std::span<Proposal> proposals, SharedPass& pass) override;

 private:
  // A tree on its way down, level by level.
  struct Growth {
    const DraftRequest* request;
    Draft* out;
    int32_t slot;  // among those that grow
    int32_t max_depth;
    int32_t depth;               // levels so far
    int32_t num_rows;            // drafted tokens in the cache
    std::exception_ptr error;    // it came to an end by
    std::vector<int32_t> level;  // the tree's tokens that the next pass continues; empty: it has grown
  };

  struct Candidate {
    int32_t id;
    int32_t parent_row;  // draft_row of its parent, which is not renumbered as indices are
    float prob;
    float path_prob;
    Draw draw;
    Guess guess;
  };

  // A child that was found in a row of logits.
  struct Picked {
    int32_t id;
    float confidence;
  };

  // What the first pass is to continue, the last token of the sequence: false where nothing may be drafted.
  bool start(Growth& growth, const DraftRequest& request, Draft& out) const;
  // Adds the level that the logits from first_row on are about, and chooses what the next pass continues.
  void grow(Growth& growth, const Logits& rows, int32_t first_row);
  // A failure ends this tree and no other.
  void try_grow(Growth& growth, const Logits& rows, int32_t first_row) noexcept;
  // The first pass of one that has too much to read for others to wait for.
  void begin_alone(Growth& growth);
  // Which growths share passes: in the first one or in further ones, and by what they need of the logits.
  struct Turn {
    bool needs_likeliest_only;
    bool is_first;
  };
  // Whether it is of this turn.
  bool has(Turn turn, const Growth& growth) const noexcept;
  // A pass of those of the turn that still grow, as many as it has room for; returns the others.
  std::span<Growth> run_together(std::span<Growth> growths, Turn turn, SharedPass& pass);
  // Puts a tree's next level into it, and returns the first of its outputs. None: the pass is full.
  std::optional<int32_t> share(Growth& growth, SharedPass& pass);
  // Whether the tree has grown as far as it will, or the request was cancelled.
  static bool is_through(const Growth& growth) noexcept {
    return growth.level.empty() || growth.request->cancelled.load(std::memory_order_relaxed);
  }
  static Candidate candidate(const TokenTree& tree, int32_t parent, int32_t id, float prob);
  // Adds the children that the draft thinks of after the tree's token `parent` to the candidates.
  void expand(const Growth& growth, const Logits& rows, int32_t row, int32_t parent);
  // No children, as the draft scores no token that may follow, or gives no numbers.
  static void note_failure(std::span<const float> logits, Draft& out) noexcept;
  void draw_child(const DraftRequest& request, std::span<const float> row, const Prefix& prefix, int32_t parent,
                  Draft& out);
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
  void settle(Growth& growth);
  // Gives rows of the draft's cache to the tokens of the level that are worth continuing, and leaves those in it.
  void choose_level(Growth& growth);

  DraftRows& rows_;
  const int32_t num_ids_;
  Likeliest likeliest_;
  std::vector<float> row_;              // [num_ids] where the model's logits are not in the order of token ids
  std::vector<Candidate> candidates_;   // of one level
  std::vector<Picked> picked_;          // the likeliest first
  const float* picked_from_ = nullptr;  // the row whose children they are, whatever the path before it; or nullptr
  std::vector<float> path_probs_;
  std::vector<Growth> growths_;  // [most_together]
};

}  // namespace pilotfish
