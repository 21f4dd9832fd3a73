// Drafts with an EAGLE head or a multi-token prediction layer: the trees of a draft model over the rows of a head.
#pragma once

#include "draft/eagle_rows.h"
#include "draft/model_drafter.h"

namespace pilotfish {

class EagleDrafter final : public HeadDrafter {
 public:
  // `width` columns has each of the head's taps. The head must outlive it.
  EagleDrafter(const Head& head, int32_t width, int32_t num_ids, const ModelLimits& limits)
      : rows_(head, width, num_ids, limits), trees_(rows_, num_ids, limits.max_seqs) {}

  bool reads_all_rows() const noexcept override { return true; }
  int32_t max_depth() const noexcept override { return TokenTree::kMaxTokens; }
  int32_t begin_levels() const noexcept override { return 1; }
  HeadState make_state(int32_t) const override { return rows_.make_state(); }
  void observe(const HeadRows& pass, HeadState& state) override { rows_.observe(pass, state); }
  bool propose(const DraftRequest& request, Draft& out) override { return trees_.propose(request, out); }
  bool shares_passes() const noexcept override { return trees_.shares_passes(); }
  void propose(std::span<Proposal> proposals, SharedPass& pass) override { trees_.propose(proposals, pass); }
  void run_begin(int32_t num_rows, int32_t context, std::span<const int32_t> block_table) override {
    rows_.run_begin(num_rows, context, block_table);
  }
  void run_level(int32_t num_rows, int32_t context, std::span<const int32_t> block_table) override {
    rows_.run_level(num_rows, context, block_table);
  }
  RoundModel step() noexcept override { return rows_.round_model(); }
  void begin_on_device(std::span<const HeadBegin> sequences) override { rows_.start(sequences); }
  void catch_up(const HeadBegin& sequence) override { rows_.catch_up(sequence); }
  KvCache* cache() noexcept override { return &rows_.step().cache(); }

 private:
  EagleRows rows_;
  ModelDrafter trees_;
};

}  // namespace pilotfish
