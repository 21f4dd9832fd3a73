// Heads that read the target's streams at the last token and nothing else: Medusa's and the MLP speculator.
#pragma once

#include <memory>

#include "draft/medusa_rows.h"
#include "draft/mlp_rows.h"
#include "draft/model_drafter.h"

namespace pilotfish {

class LastRowDrafter : public HeadDrafter {
 public:
  LastRowDrafter(const Head& head, int32_t width)
      : device_(head.device()), width_(width), num_taps_(head.entry().num_taps()) {}

  bool reads_all_rows() const noexcept override { return false; }
  HeadState make_state(int32_t) const override {
    HeadState state;
    state.streams = std::make_unique<FloatRows>(device_, 1, width_, num_taps_);
    return state;
  }
  void observe(const HeadRows& pass, HeadState& state) override {
    state.streams->take(0, pass.hidden.streams, pass.rows.back(), 1);
    state.position = pass.position + static_cast<int32_t>(pass.rows.size()) - 1;
    state.num_rows = 1;
  }

 private:
  const std::shared_ptr<CudaDevice> device_;
  const int32_t width_;
  const int32_t num_taps_;
};

class MedusaDrafter final : public LastRowDrafter {
 public:
  // `width` columns has each of the head's taps. The head must outlive it.
  MedusaDrafter(const Head& head, int32_t width, int32_t num_ids)
      : LastRowDrafter(head, width), rows_(head, width, num_ids), trees_(rows_, num_ids) {}

  int32_t max_depth() const noexcept override { return rows_.max_depth(); }
  int32_t begin_levels() const noexcept override { return rows_.max_depth(); }
  bool propose(const DraftRequest& request, Draft& out) override { return trees_.propose(request, out); }
  void run_begin(int32_t, int32_t, std::span<const int32_t>) override { rows_.run(); }
  void run_level(int32_t, int32_t, std::span<const int32_t>) override {}

 private:
  MedusaRows rows_;
  ModelDrafter trees_;
};

class MlpDrafter final : public LastRowDrafter {
 public:
  // A level has max_rows rows at most.
  MlpDrafter(const Head& head, int32_t width, int32_t num_ids, int32_t max_rows)
      : LastRowDrafter(head, width), rows_(head, width, num_ids, max_rows), trees_(rows_, num_ids) {}

  int32_t max_depth() const noexcept override { return rows_.max_depth(); }
  int32_t begin_levels() const noexcept override { return 1; }
  bool propose(const DraftRequest& request, Draft& out) override { return trees_.propose(request, out); }
  void run_begin(int32_t, int32_t, std::span<const int32_t>) override { rows_.run_first(); }
  void run_level(int32_t num_rows, int32_t, std::span<const int32_t>) override { rows_.run_next(num_rows); }

 private:
  MlpRows rows_;
  ModelDrafter trees_;
};

}  // namespace pilotfish
