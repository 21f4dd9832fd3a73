// Trees are drafted with an MLP speculator (Wertheimer et al., "Accelerating production LLMs with combined
// token/embedding speculators", 2024): stage i mixes the state of the stage before with the token chosen from it, and
// scores the next one. Rows of a level are paths of the tree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft/last_row_drafter.h"
#include "draft/row_logits.h"
#include "model/head.h"
#include "model/row_graph.h"

namespace pilotfish {

class MlpRows final : public LastRows {
 public:
  // `width` columns has each of the head's taps; ids from num_ids on are padding. A level, of all requests that share
  // it, has limits.max_outputs rows at most, and limits.max_seqs requests. The head must outlive it.
  MlpRows(const Head& head, int32_t width, int32_t num_ids, const ModelLimits& limits);

  static uint64_t num_bytes(const HeadEntry& entry, uint64_t width, uint64_t max_rows, uint64_t most_together) noexcept;

  Source source() const noexcept override { return Source::kHead; }
  int32_t num_logits() const noexcept override { return head_.entry().num_logits; }
  std::span<const int32_t> logit_ids() const noexcept override { return head_.entry().logit_ids; }
  int32_t max_depth() const noexcept override { return head_.entry().num_predictions; }
  int32_t max_rows() const noexcept override { return max_rows_; }
  int32_t begin_levels() const noexcept override { return 1; }
  void run_begin(int32_t num_rows) override { run(0, num_rows); }
  void run_further(int32_t num_rows) override { run(1, num_rows); }
  std::optional<Logits> begin(const DraftRequest& request, Draft& out) override;
  Logits run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) override;
  bool shares_passes() const noexcept override { return streams_.max_rows() > 1; }
  bool finds_likeliest() const noexcept override { return logits_.finds_likeliest(); }
  Pass share_begin(const DraftRequest& request, Draft&, int32_t first_row) override {
    return take_last(request, streams_, first_row);
  }
  void fill_shared(DraftRow row, const TokenTree& tree, std::span<const int32_t> level, int32_t first_row) override;
  void keep_shared(DraftRow row, int32_t first_output, int32_t num_outputs) override;
  Logits run_shared(SharedPass& pass, const DraftRequest& request, int32_t depth) override;

 private:
  // Of a stage, over the tokens in ids_.
  void start(size_t stage, int32_t num_rows);
  void run(size_t stage, int32_t num_rows);

  const Head& head_;
  const int32_t max_rows_;
  std::vector<int32_t> ids_;              // [max_rows] of the stage's tokens
  std::optional<CudaMemory> device_ids_;  // on a device, where they are copied to
  FloatRows streams_;                     // of the first stage, [num_taps, most_together, width]
  FloatRows state_, next_state_;          // of each of the others; what each leaves behind
  RowLogits logits_;
  std::vector<RowGraph> stages_;
  FloatRows states_;  // [most_together * TreePass::kMaxRows, state_size] after each draft row of a slot; 0: after the
                      // sequence
};

}  // namespace pilotfish
