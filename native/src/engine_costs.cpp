// The engine's view of what passes cost: measured once where that is asked for.

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "bundle/sha256.h"
#include "control/calibration.h"
#include "device/chain_lengths.h"
#include "engine.h"
#include "sampling/row_math.h"
#include "status.h"

namespace pilotfish {
namespace {

constexpr int32_t kMostContext = 512 + 128;
constexpr int32_t kMostCaughtUp = 128;
constexpr int32_t kMostContinued = 8;
constexpr int32_t kDeviceLevels = 8;  // a device's steps follow each other without the host

std::string describe(const std::shared_ptr<CudaDevice>& device) {
  if (!device) return "cpu";
  const CudaDeviceInfo info = device->info();
  return info.name + " of CUDA " + std::to_string(info.driver_version);
}

std::string key_of(const Manifest& manifest, const pf_engine_options& options, const std::string& device,
                   int32_t max_context) {
  std::ifstream file(manifest.folder / "manifest.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Sha256 hash;
  hash.update(text.data(), text.size());
  std::ostringstream key;
  key << describe_build_and_machine() << "; bundle " << hash.finish() << "; device " << device << "; "
      << options.num_threads << " threads; " << options.max_draft_tokens << " drafted; chunks of "
      << options.prefill_chunk << "; context " << max_context;
  return key.str();
}

}  // namespace

RoundCosts Engine::find_costs(const Manifest& manifest) {
  if (options_.calibration == PF_CALIBRATION_OFF || options_.max_draft_tokens == 0) {
    RoundCosts costs = RoundCosts::guess(manifest.target.pass_weight_bytes(),
                                         manifest.draft ? manifest.draft->pass_weight_bytes() : 0);
    if (head_drafter_) {
      costs.head = DraftCosts::guess(manifest.head->pass_weight_bytes());
      costs.head->begin_levels = head_drafter_->begin_levels();
      const bool has_levels = head_drafter_->begin_levels() < head_drafter_->max_depth();
      if (!has_levels) costs.head->level = {.rows = {1}, .contexts = {0, 0}, .seconds = {{{0}, {0}}}};
    }
    return costs;
  }
  const CalibrationFile file{options_.calibration_folder ? options_.calibration_folder : "",
                             key_of(manifest, options_, describe(device_), plan_.max_context)};
  if (options_.calibration == PF_CALIBRATION_KEPT) {
    if (std::optional<RoundCosts> kept = read_costs(file)) return *std::move(kept);
  }
  RoundCosts costs = measure();
  keep_costs(file, costs);
  return costs;
}

RoundCosts Engine::measure() {
  const std::lock_guard lock(mutex_);
  int32_t max_context = std::min({plan_.max_context, target_->max_positions(), kMostContext});
  if (draft_) max_context = std::min(max_context, draft_->max_positions());
  OpenSequence sequence(*this, max_context, {});
  const Reservation room(sequence, max_context);
  for (const int32_t block_id : sequence.block_table()) {
    target_->cache().fill(block_id);
    if (draft_) draft_->cache().fill(block_id);
    if (KvCache* const cache = head_cache()) cache->fill(block_id);
  }
  std::vector<int32_t> ids(max_context);
  for (int32_t i = 0; i < max_context; ++i) ids[i] = i % num_ids_;
  // With what a round does with the logits: each row's choice, and the log probability of what is emitted. On a device
  // that is next to nothing.
  const auto run = [&](Model& model, int32_t num_rows, int32_t context, int32_t num_outputs, int32_t num_times = 1) {
    const Pass pass{.ids = std::span(ids).first(num_rows),
                    .positions = {},
                    .tree_mask = {},
                    .block_table = sequence.block_table(),
                    .context = context,
                    .num_outputs = num_outputs};
    if (device_) return model.forward_on_device(pass, num_times);
    const Logits logits = model.forward(pass);
    for (int32_t row = 0; row < num_outputs; ++row) {
      const Peak best = find_peak(logits.row(row));
      if (row == 0 || &model != target_.get()) static_cast<void>(exp_sum(logits.row(row), best.value, 1));
    }
  };
  const int32_t most_verified = std::min(options_.max_draft_tokens + 1, max_context);
  const auto verify = [&](int32_t num_rows, int32_t context) {
    if (device_) num_rows = 1 + DeviceRound::padded_length(num_rows - 1, most_verified - 1);
    run(*target_, num_rows, context, num_rows);
  };
  TimedPasses passes{.verify = verify,
                     .most_verified = most_verified,
                     .verified_rows = device_ ? rows_of_lengths(most_verified) : std::vector<int32_t>{},
                     .max_context = max_context,
                     .draft = {},
                     .head = {}};
  if (draft_) {
    passes.draft = TimedSource{
        .begin = [&](int32_t num_rows, int32_t context) { run(*draft_, num_rows, context, 1); },
        .level = [&](int32_t num_rows, int32_t context) { run(*draft_, num_rows, context, num_rows, kDeviceLevels); },
        .before = verify,
        .num_levels = device_ ? kDeviceLevels : 1,
        .most_begun = std::min({kMostCaughtUp, options_.prefill_chunk, max_context}),
        .most_continued = std::min({kMostContinued, options_.max_draft_tokens + 1, max_context})};
  }
  if (head_drafter_) {
    const int32_t begin_levels = head_drafter_->begin_levels();
    Model* const step = device_ ? head_drafter_->step().model : nullptr;
    passes.head =
        TimedSource{.begin = [&](int32_t rows,
                                 int32_t context) { head_drafter_->run_begin(rows, context, sequence.block_table()); },
                    .level = {},
                    .before = verify,
                    .num_levels = step ? kDeviceLevels : 1,
                    .begin_levels = begin_levels,
                    .most_begun = head_drafter_->reads_all_rows() ? std::min(kMostCaughtUp, max_context) : 1,
                    .most_continued = std::min({kMostContinued, options_.max_draft_tokens, max_context})};
    if (begin_levels < head_drafter_->max_depth()) {
      passes.head->level = [&, step](int32_t rows, int32_t context) {
        if (step) return run(*step, rows, context, rows, kDeviceLevels);
        head_drafter_->run_level(rows, context, sequence.block_table());
      };
    }
  }
  return measure_costs(passes);
}

double Engine::cost(int32_t which, int32_t num_rows, int32_t context) const {
  if (num_rows < 1 || context < 0) {
    fail(PF_INVALID_ARGUMENT, "num_rows is ", num_rows, " and context ", context, ", at least 1 and 0 are needed");
  }
  if (which == PF_MODEL_TARGET) return costs_.verify.at(num_rows, context);
  if (which == PF_MODEL_HEAD) {
    if (!costs_.head) fail(PF_INVALID_ARGUMENT, "the bundle has no head");
    return costs_.head->begin.at(num_rows, context);
  }
  if (which != PF_MODEL_DRAFT) fail(PF_INVALID_ARGUMENT, "model is ", which, ", not a pf_model");
  if (!costs_.draft) fail(PF_INVALID_ARGUMENT, "the bundle has no draft model");
  return costs_.draft->begin.at(num_rows, context);
}

void Engine::remember(std::span<const int32_t> output) noexcept {
  if (store_) store_->add(output);
}

void Engine::save_lookup() {
  const std::lock_guard lock(mutex_);
  if (!store_) fail(PF_INVALID_ARGUMENT, "the engine was opened without a lookup_store");
  store_->save();
}

}  // namespace pilotfish
