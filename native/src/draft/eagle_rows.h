// Trees are drafted with a head that has a decoder layer: a row is a token and the feature of the position before it.
//
// EAGLE (Li et al., "EAGLE: Speculative sampling requires rethinking feature uncertainty", 2024, section 4), and what
// shares its form: EAGLE-3 and multi-token prediction layers. Row t, at position and cache slot t, is token t + 1 with
// the feature of position t and gives the logits after that token. Features of the sequence are the target's own; those
// of drafted tokens are what the head left behind at the row before. A round's drafted rows are not kept: what was
// accepted is run again with the target's features.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft/draft_rows.h"
#include "draft/head_drafter.h"
#include "model/head.h"
#include "model/row_graph.h"

namespace pilotfish {

class EagleRows final : public DraftRows {
 public:
  static constexpr int32_t kMaxRows = TreePass::kMaxRows;  // of a pass

  // `width` columns has each of the head's taps; ids from num_ids on are padding. The head must outlive it.
  EagleRows(const Head& head, int32_t width, int32_t num_ids, const ModelLimits& target_limits);

  // Of passes of so many outputs, which num_sharing requests share.
  static uint64_t num_bytes(const HeadEntry& entry, uint64_t width, uint64_t max_outputs,
                            uint64_t num_sharing) noexcept;
  // Of a request's state.
  static uint64_t state_bytes(const HeadEntry& entry, uint64_t width) noexcept;

  HeadState make_state() const;
  // Takes over the streams of rows that the target has run. What does not wait for its next token is brought into the
  // cache when there is no room for more.
  void observe(const HeadRows& pass, HeadState& state);
  // Brings what waits and has its next token into the cache.
  void catch_up(const HeadBegin& sequence);

  Source source() const noexcept override { return Source::kHead; }
  int32_t num_logits() const noexcept override { return head_.entry().num_logits; }
  std::span<const int32_t> logit_ids() const noexcept override { return head_.entry().logit_ids; }
  int32_t max_rows() const noexcept override { return step_.limits().max_outputs; }
  std::optional<Logits> begin(const DraftRequest& request, Draft& out) override;
  Logits run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) override;
  bool shares_passes() const noexcept override { return step_.limits().max_seqs > 1; }
  int32_t num_unread(const DraftRequest& request, const Draft&) const noexcept override {
    return request.head_state->num_rows;
  }
  Pass share_begin(const DraftRequest& request, Draft& out, int32_t first_row) override;
  Pass share_level(const DraftRequest& request, TreePass& rows) override;
  void fill_shared(DraftRow row, const TokenTree& tree, std::span<const int32_t> level, int32_t first_row) override;
  void keep_shared(DraftRow row, int32_t first_output, int32_t num_outputs) override;
  Logits run_shared(SharedPass& pass, const DraftRequest& request, int32_t depth) override;
  bool finds_likeliest() const noexcept override { return likely_.has_value(); }

  // The passes of a round over whatever the buffers hold, to time them.
  void run_begin(int32_t num_rows, int32_t context, std::span<const int32_t> block_table);
  void run_level(int32_t num_rows, int32_t context, std::span<const int32_t> block_table);

  // The first pass of a round of one sequence or several, not waited for. Further ones carry on.
  void start(std::span<const HeadBegin> sequences);
  Model& step() noexcept { return step_; }
  RoundModel round_model() noexcept { return {&step_, likely_ ? &*likely_ : nullptr}; }

 private:
  // Takes the first num_rows rows that wait, whose next tokens the sequence must have, from row first_row of the
  // streams on. Returns the pass of the step that brings them into the cache.
  Pass take(HeadState& state, std::span<const int32_t> tokens, std::span<const int32_t> block_table, int32_t num_rows,
            int32_t num_outputs, int32_t first_row = 0);
  // And makes their features.
  Pass catch_up(const HeadBegin& sequence, int32_t num_rows, int32_t num_outputs);
  // Leaves no more rows waiting than a pass has.
  void make_room(std::span<const HeadBegin> sequences);
  // A pass of the step, whose outputs are draft rows from draft_row on.
  Logits run(const DraftRequest& request, const Pass& pass, int32_t draft_row);
  void time(int32_t num_rows, int32_t context, std::span<const int32_t> block_table, int32_t num_outputs);

  const Head& head_;
  const int32_t num_taps_;
  const int32_t width_;
  Model step_;
  FloatRows streams_;  // [num_taps, kMaxRows, width]
  RowGraph features_;  // from these to the step's features
  FloatRows drafted_;  // [max_seqs * kMaxRows, state_size] left behind at each draft row of a slot; 0: at the last row
  std::optional<LikelyRows> likely_;  // on a device
  SharedPass begun_;                  // the first pass of several sequences there
};

}  // namespace pilotfish
