// Heads that read the target's streams at the last token and nothing else: Medusa's and the MLP speculator.
#pragma once

#include <memory>

#include "draft/draft_rows.h"
#include "draft/head_drafter.h"
#include "draft/model_drafter.h"
#include "model/head.h"

namespace pilotfish {

// The rows of such a head's passes.
class LastRows : public DraftRows {
 public:
  // Levels that the first pass of a round gives.
  virtual int32_t begin_levels() const noexcept = 0;
  // The passes of a round over whatever the buffers hold, to time them, the first with a row of each of so many
  // requests. A head without further passes runs none.
  virtual void run_begin(int32_t num_rows) = 0;
  virtual void run_further(int32_t num_rows) = 0;

  // The rows are in no cache.
  Pass share_level(const DraftRequest&, TreePass& rows) override { return rows.at({}, 0); }

 protected:
  // Row first_row of `streams`, which are the head's input, becomes the request's. Returns its part of the first pass.
  static Pass take_last(const DraftRequest& request, FloatRows& streams, int32_t first_row);
};

class LastRowDrafter final : public HeadDrafter {
 public:
  // `width` columns has each of the head's taps. The head must outlive it. At most `most_together` requests draft
  // together.
  LastRowDrafter(const Head& head, int32_t width, int32_t num_ids, int32_t most_together,
                 std::unique_ptr<LastRows> rows)
      : device_(head.device()),
        width_(width),
        num_taps_(head.entry().num_taps()),
        rows_(std::move(rows)),
        trees_(*rows_, num_ids, most_together) {}

  bool reads_all_rows() const noexcept override { return false; }
  int32_t max_depth() const noexcept override { return rows_->max_depth(); }
  int32_t begin_levels() const noexcept override { return rows_->begin_levels(); }
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
  bool propose(const DraftRequest& request, Draft& out) override { return trees_.propose(request, out); }
  bool shares_passes() const noexcept override { return trees_.shares_passes(); }
  void propose(std::span<Proposal> proposals, SharedPass& pass) override { trees_.propose(proposals, pass); }
  void run_begin(int32_t num_rows, int32_t, std::span<const int32_t>) override { rows_->run_begin(num_rows); }
  void run_level(int32_t num_rows, int32_t, std::span<const int32_t>) override { rows_->run_further(num_rows); }

 private:
  const std::shared_ptr<CudaDevice> device_;
  const int32_t width_;
  const int32_t num_taps_;
  const std::unique_ptr<LastRows> rows_;
  ModelDrafter trees_;
};

}  // namespace pilotfish
