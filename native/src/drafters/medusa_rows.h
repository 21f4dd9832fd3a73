// Trees are drafted with Medusa's heads (Cai et al., "Medusa: Simple LLM inference acceleration framework with multiple
// decoding heads", 2024): one pass over the target's last stream scores every level, whatever the path.
#pragma once

#include <cstdint>
#include <span>

#include "drafters/draft_rows.h"
#include "drafters/head_drafter.h"
#include "model/head.h"
#include "model/row_graph.h"

namespace pilotfish {

class MedusaRows final : public DraftRows {
 public:
  // `width` columns has the head's tap. The head must outlive it.
  MedusaRows(const Head& head, int32_t width);

  static uint64_t num_bytes(const HeadEntry& entry, uint64_t width) noexcept;

  // The pass of a round over whatever the buffer holds, to time it.
  void run() { graph_.run(1); }

  Source source() const noexcept override { return Source::kHead; }
  int32_t num_logits() const noexcept override { return head_.entry().num_logits; }
  std::span<const int32_t> logit_ids() const noexcept override { return head_.entry().logit_ids; }
  int32_t max_depth() const noexcept override { return head_.entry().num_predictions; }
  int32_t max_rows() const noexcept override { return TokenTree::kMaxTokens; }
  std::optional<Logits> begin(const DraftRequest& request, Draft& out) override;
  Logits run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) override;

 private:
  const Head& head_;
  RowGraph graph_;
};

}  // namespace pilotfish
