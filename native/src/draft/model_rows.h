// Trees are drafted with a small model that shares the target's vocabulary: its rows are the sequence's tokens.
#pragma once

#include "draft/draft_rows.h"

namespace pilotfish {

class ModelRows final : public DraftRows {
 public:
  // `model` must outlive it, as must `likely`, which finds the likeliest of its tokens on a device; nullptr on the CPU.
  ModelRows(Model& model, int32_t prefill_chunk, LikelyRows* likely)
      : model_(model), prefill_chunk_(prefill_chunk), likely_(likely) {}

  Source source() const noexcept override { return Source::kDraft; }
  int32_t num_logits() const noexcept override { return model_.num_logits(); }
  std::span<const int32_t> logit_ids() const noexcept override { return model_.logit_ids(); }
  int32_t max_rows() const noexcept override { return model_.limits().max_outputs; }
  std::optional<Logits> begin(const DraftRequest& request, Draft& out) override;
  Logits run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) override;
  bool shares_passes() const noexcept override { return model_.limits().max_seqs > 1; }
  Logits run_shared(SharedPass& pass, const DraftRequest& request, int32_t) override {
    if (likely_ && pass.num_sequences() > 1) pass.fill_up();
    return run_pass(model_, likely_, request, pass.pass());
  }
  bool finds_likeliest() const noexcept override { return likely_ != nullptr; }
  int32_t num_unread(const DraftRequest& request, const Draft& out) const noexcept override {
    return static_cast<int32_t>(request.tokens.size()) - out.num_cached;
  }
  Pass share_begin(const DraftRequest& request, Draft& out, int32_t first_row) override;
  Pass share_level(const DraftRequest& request, TreePass& rows) override;

 private:
  // What the model has not read of the sequence.
  Pass unread(const DraftRequest& request, const Draft& out) const noexcept;
  // The model sees a sequence of its own, which begins with request.first_token: the blocks of that.
  std::span<const int32_t> table(const DraftRequest& request) const noexcept;

  Model& model_;
  const int32_t prefill_chunk_;
  LikelyRows* const likely_;
};

}  // namespace pilotfish
