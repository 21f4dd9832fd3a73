// Trees are drafted with Medusa's heads (Cai et al., "Medusa: Simple LLM inference acceleration framework with multiple
// decoding heads", 2024): one pass over the target's last stream scores every level, whatever the path.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/last_row_drafter.h"
#include "draft/row_logits.h"
#include "model/head.h"
#include "model/row_graph.h"

namespace pilotfish {

class MedusaRows final : public LastRows {
 public:
  // `width` columns has each of the head's taps; ids from num_ids on are padding. The head must outlive it. At most
  // `most_together` requests share a pass.
  MedusaRows(const Head& head, int32_t width, int32_t num_ids, int32_t most_together);

  static uint64_t num_bytes(const HeadEntry& entry, uint64_t width, uint64_t most_together) noexcept;

  Source source() const noexcept override { return Source::kHead; }
  int32_t num_logits() const noexcept override { return head_.entry().num_logits; }
  std::span<const int32_t> logit_ids() const noexcept override { return head_.entry().logit_ids; }
  int32_t max_depth() const noexcept override { return head_.entry().num_predictions; }
  int32_t max_rows() const noexcept override { return TokenTree::kMaxTokens; }
  int32_t begin_levels() const noexcept override { return max_depth(); }
  void run_begin(int32_t num_rows) override;
  void run_further(int32_t) override {}
  std::optional<Logits> begin(const DraftRequest& request, Draft& out) override;
  Logits run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) override;
  bool shares_passes() const noexcept override { return most_together_ > 1; }
  bool finds_likeliest() const noexcept override { return logits_.finds_likeliest(); }
  Pass share_begin(const DraftRequest& request, Draft&, int32_t first_row) override {
    return take_last(request, streams_, first_row);
  }
  void keep_shared(DraftRow row, int32_t first_output, int32_t num_outputs) override;
  void fill_shared(DraftRow row, const TokenTree& tree, std::span<const int32_t> level, int32_t first_row) override;
  Logits run_shared(SharedPass& pass, const DraftRequest& request, int32_t depth) override;

 private:
  // Of the last pass: a row that stands for so many.
  Logits level(int32_t depth, int32_t num_rows) const;

  const Head& head_;
  const int32_t most_together_;
  FloatRows streams_;  // [num_taps, most_together, width]
  RowLogits logits_;   // [num_predictions, requests of the round]: a level a row of each
  RowGraph graph_;
  Logits levels_{};  // of a request's own round
  // Of a round of several: how many share it, the row of each slot's, and of what each output of a further pass is.
  int32_t num_together_ = 0;
  std::vector<int32_t> row_of_slot_;
  std::array<int32_t, TreePass::kMaxRows> row_of_output_;
};

}  // namespace pilotfish
