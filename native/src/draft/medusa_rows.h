// Trees are drafted with Medusa's heads (Cai et al., "Medusa: Simple LLM inference acceleration framework with multiple
// decoding heads", 2024): one pass over the target's last stream scores every level, whatever the path.
#pragma once

#include <cstdint>
#include <span>

#include "draft/last_row_drafter.h"
#include "draft/row_logits.h"
#include "model/head.h"
#include "model/row_graph.h"

namespace pilotfish {

class MedusaRows final : public LastRows {
 public:
  // `width` columns has each of the head's taps; ids from num_ids on are padding. The head must outlive it.
  MedusaRows(const Head& head, int32_t width, int32_t num_ids);

  static uint64_t num_bytes(const HeadEntry& entry, uint64_t width) noexcept;

  Source source() const noexcept override { return Source::kHead; }
  int32_t num_logits() const noexcept override { return head_.entry().num_logits; }
  std::span<const int32_t> logit_ids() const noexcept override { return head_.entry().logit_ids; }
  int32_t max_depth() const noexcept override { return head_.entry().num_predictions; }
  int32_t max_rows() const noexcept override { return TokenTree::kMaxTokens; }
  int32_t begin_levels() const noexcept override { return max_depth(); }
  void run_begin() override;
  void run_further(int32_t) override {}
  std::optional<Logits> begin(const DraftRequest& request, Draft& out) override;
  Logits run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) override;

 private:
  // Of the last pass: a row that stands for so many.
  Logits level(int32_t depth, int32_t num_rows) const;

  const Head& head_;
  FloatRows streams_;  // [num_taps, 1, width]
  RowLogits logits_;   // a level a row
  RowGraph graph_;
  Logits levels_{};  // of the round
};

}  // namespace pilotfish
