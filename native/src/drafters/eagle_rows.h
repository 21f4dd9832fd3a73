// Trees are drafted with a head that has a decoder layer: a row is a token and the feature of the position before it.
//
// EAGLE (Li et al., "EAGLE: Speculative sampling requires rethinking feature uncertainty", 2024, section 4), and what
// shares its form: EAGLE-3 and multi-token prediction layers. Row t, at position and cache slot t, is token t + 1 with
// the feature of position t and gives the logits after that token. Features of the sequence are the target's own; those
// of drafted tokens are what the head left behind at the row before. A round's drafted rows are not kept: what was
// accepted is run again with the target's features.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafters/draft_rows.h"
#include "drafters/head_drafter.h"
#include "model/head.h"
#include "model/row_graph.h"
#include "model/step_graph.h"

namespace pilotfish {

class EagleRows final : public DraftRows {
 public:
  static constexpr int32_t kMaxRows = TreePass::kMaxRows;  // of a pass

  // `width` columns has each of the head's taps. The head must outlive it.
  EagleRows(const Head& head, int32_t width, const ModelLimits& target_limits);

  static uint64_t num_bytes(const HeadEntry& entry, uint64_t width, uint64_t max_outputs) noexcept;
  // Of a request's state.
  static uint64_t state_bytes(const HeadEntry& entry, uint64_t width) noexcept;

  HeadState make_state() const;
  // Takes over the streams of rows that the target has run. What does not wait for its next token is brought into the
  // cache when there is no room for more.
  void observe(const HeadRows& pass, HeadState& state);

  Source source() const noexcept override { return Source::kHead; }
  int32_t num_logits() const noexcept override { return head_.entry().num_logits; }
  std::span<const int32_t> logit_ids() const noexcept override { return head_.entry().logit_ids; }
  int32_t max_rows() const noexcept override { return step_.limits().max_outputs; }
  std::optional<Logits> begin(const DraftRequest& request, Draft& out) override;
  Logits run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) override;

  // The passes of a round over whatever the buffers hold, to time them.
  void run_begin(int32_t num_rows, int32_t context, std::span<const int32_t> block_table);
  void run_level(int32_t num_rows, int32_t context, std::span<const int32_t> block_table);

  KvCache& cache() noexcept { return step_.cache(); }

 private:
  // Runs the first num_rows rows that wait, whose next tokens the sequence must have; logits after the last one if
  // num_outputs is 1.
  Logits catch_up(HeadState& state, std::span<const int32_t> tokens, std::span<const int32_t> block_table,
                  int32_t num_rows, int32_t num_outputs);
  void keep_feature(int32_t draft_row, int32_t output);

  const Head& head_;
  const int32_t num_taps_;
  const int32_t width_;
  RowGraph features_;
  StepGraph step_;
  std::vector<float> drafted_;  // [kMaxRows, state_size] what was left behind at each draft row; 0: at the last row
};

}  // namespace pilotfish
