// Measures what the passes of rounds cost on this machine: of each model, at any size, in one sequence whose caches
// hold something, and of the target over several of them.

#include <algorithm>
#include <memory>
#include <vector>

#include "base/pass_limits.h"
#include "device/chain_lengths.h"
#include "engine/engine.h"
#include "plan/calibration.h"
#include "sampling/row_math.h"

namespace pilotfish {
namespace {

constexpr int32_t kMostContext = 512 + 128;
constexpr int32_t kMostCaughtUp = 128;
constexpr int32_t kMostContinued = 8;
constexpr int32_t kDeviceLevels = 8;  // a device's steps follow each other without the host

}  // namespace

class Engine::PassRunner {
 public:
  explicit PassRunner(Engine& engine)
      : engine_(engine),
        max_context_(most_context(engine)),
        most_verified_(std::min(engine.target_->limits().max_outputs, max_context_)),
        sequence_(engine, max_context_),
        room_(sequence_, max_context_),
        ids_(max_context_) {
    engine.fill_caches(sequence_);
    if (engine.device_) open_others();
    for (int32_t i = 0; i < max_context_; ++i) ids_[i] = i % engine.num_ids_;
  }

  // They refer to this.
  TimedPasses passes() {
    TimedPasses passes{.verify = verify_,
                       .most_verified = most_verified_,
                       .verified_rows = {},
                       .max_context = max_context_,
                       .draft = {},
                       .head = {}};
    if (engine_.device_) passes.verified_rows = rows_of_lengths(most_verified_);
    if (!others_.empty()) {
      passes.together = together_;
      passes.most_together = 1 + static_cast<int32_t>(others_.size());
    }
    if (engine_.draft_) passes.draft = draft(*engine_.draft_);
    if (engine_.head_drafter_) passes.head = head(*engine_.head_drafter_);
    return passes;
  }

 private:
  // Of a sequence that shares passes with the first one.
  struct Other {
    OpenSequence sequence;
    Reservation room;

    Other(Engine& engine, int32_t max_context) : sequence(engine, max_context, {}), room(sequence, max_context) {
      engine.fill_caches(sequence);
    }
  };

  static int32_t most_context(const Engine& engine) {
    const int32_t most = std::min({engine.plan_.max_context, engine.target_->max_positions(), kMostContext});
    return engine.draft_ ? std::min(most, engine.draft_->max_positions()) : most;
  }

  // With what a round does with the logits: each row's choice, and the log probability of what is emitted. On a device
  // that is next to nothing.
  void run(Model& model, int32_t num_rows, int32_t context, int32_t num_outputs, int32_t num_times = 1) {
    const Pass pass{.ids = std::span(ids_).first(num_rows),
                    .positions = {},
                    .tree_mask = {},
                    .block_table = sequence_.block_table(),
                    .context = context,
                    .num_outputs = num_outputs};
    if (engine_.device_) return model.forward_on_device(pass, num_times);
    const Logits logits = model.forward(pass);
    for (int32_t row = 0; row < num_outputs; ++row) {
      const Peak best = find_peak(logits.row(row));
      if (row == 0 || &model != engine_.target_.get()) static_cast<void>(exp_sum(logits.row(row), best.value, 1));
    }
  }

  // As many sequences as share a round there, each with caches of its own: what they read comes from memory.
  void open_others() {
    const int32_t num_others = max_together(engine_.options_) - 1;
    for (int32_t i = 0; i < num_others; ++i) others_.push_back(std::make_unique<Other>(engine_, max_context_));
  }

  void run_together(int32_t num_sequences, int32_t context) {
    const std::vector<int32_t> positions(num_sequences, context);
    std::vector<PassSequence> sequences{{1, sequence_.block_table(), context}};
    for (int32_t i = 1; i < num_sequences; ++i) {
      sequences.push_back({1, others_[i - 1]->sequence.block_table(), context});
    }
    engine_.target_->forward_on_device({.ids = std::span(ids_).first(num_sequences),
                                        .positions = positions,
                                        .tree_mask = {},
                                        .block_table = {},
                                        .context = 0,
                                        .num_outputs = num_sequences,
                                        .sequences = sequences},
                                       1);
  }

  // A row each of those that share a pass, where they are more than those of a tree's level.
  int32_t most_continued() const {
    return std::max(kMostContinued, engine_.device_ ? max_together(engine_.options_) : 1);
  }

  TimedSource draft(Model& model) {
    const pf_engine_options& options = engine_.options_;
    return {.begin = [this, &model](int32_t rows, int32_t context) { run(model, rows, context, 1); },
            .level = [this, &model](int32_t rows, int32_t context) { run(model, rows, context, rows, kDeviceLevels); },
            .before = verify_,
            .num_levels = engine_.device_ ? kDeviceLevels : 1,
            .most_begun = std::min({kMostCaughtUp, options.prefill_chunk, max_context_}),
            .most_continued = std::min({most_continued(), options.max_draft_tokens + 1, max_context_})};
  }

  TimedSource head(HeadDrafter& drafter) {
    Model* const step = engine_.device_ ? drafter.step().model : nullptr;
    TimedSource source{
        .begin = [this, &drafter](int32_t rows,
                                  int32_t context) { drafter.run_begin(rows, context, sequence_.block_table()); },
        .level = {},
        .before = verify_,
        .num_levels = step ? kDeviceLevels : 1,
        .begin_levels = drafter.begin_levels(),
        .most_begun = drafter.reads_all_rows() ? std::min(kMostCaughtUp, max_context_) : max_together(engine_.options_),
        .most_continued = std::min({most_continued(), engine_.options_.max_draft_tokens, max_context_})};
    if (drafter.begin_levels() < drafter.max_depth()) {
      source.level = [this, &drafter, step](int32_t rows, int32_t context) {
        if (step) return run(*step, rows, context, rows, kDeviceLevels);
        drafter.run_level(rows, context, sequence_.block_table());
      };
    }
    return source;
  }

  Engine& engine_;
  const int32_t max_context_;
  const int32_t most_verified_;
  OpenSequence sequence_;
  const Reservation room_;
  std::vector<int32_t> ids_;
  std::vector<std::unique_ptr<Other>> others_;
  const TimedPass together_ = [this](int32_t num_sequences, int32_t context) { run_together(num_sequences, context); };
  const TimedPass verify_ = [this](int32_t num_rows, int32_t context) {
    if (engine_.device_) num_rows = 1 + DeviceRound::padded_length(num_rows - 1, most_verified_ - 1);
    run(*engine_.target_, num_rows, context, num_rows);
  };
};

RoundCosts Engine::measure() {
  const std::lock_guard lock(mutex_);
  PassRunner runner(*this);
  return measure_costs(runner.passes());
}

}  // namespace pilotfish
