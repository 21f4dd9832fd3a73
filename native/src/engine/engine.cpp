#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/cores.h"
#include "base/pass_limits.h"
#include "base/platform/memory.h"
#include "base/platform/text.h"
#include "base/status.h"
#include "device/cuda_library.h"
#include "engine/load_progress.h"
#include "engine/memory_plan.h"
#include "engine/options.h"
#include "instruction_set.h"
#include "memory/cuda_memory_plan.h"
#include "model/provider_kernels.h"
#include "sampling/sampling_options.h"

namespace pilotfish {
namespace {

pf_engine_options resolved(pf_engine_options options) {
  check_options(options);
  instruction_set();  // a wrong choice in the environment shows here instead of in the first pass
  if (options.device == PF_DEVICE_CUDA) refuses_provider_kernels();  // so does this one
  if (options.num_threads == 0) options.num_threads = num_usable_cores();
  return options;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::shared_ptr<CudaDevice> open_device(const pf_engine_options& options) {
  return options.device == PF_DEVICE_CUDA ? open_cuda_device(options.device_index) : nullptr;
}

pf_engine_info plan_on(const std::shared_ptr<CudaDevice>& device, const Manifest& manifest,
                       const pf_engine_options& options) {
  const uint64_t host_bytes = platform::memory_limit();
  if (!device) return plan_memory(manifest, options, nullptr, host_bytes);
  const CudaDeviceInfo found = device->info();
  return plan_memory(manifest, options, &found, host_bytes);
}

// With what the plan decided.
pf_engine_options planned(pf_engine_options options, const pf_engine_info& plan) {
  options.prefill_chunk = plan.prefill_chunk;
  return options;
}

}  // namespace

Workspace::Workspace(int32_t num_ids, const pf_engine_options& options)
    : drafts(max_together(options)),
      verified(max_verified_rows(options), max_verified_rows(options), max_together(options)),
      drafted(max_rows_to_draft(options), max_drafted_rows(options), max_together(options)),
      sampler(num_ids) {
  proposals.reserve(max_together(options));
  members.reserve(max_together(options));
  head_begins.reserve(max_together(options));
  settings.reserve(max_together(options));
  sharers.reserve(max_together(options));
  for (Draft& draft : drafts) {
    if (options.acceptance != PF_ACCEPT_REJECTION) break;
    draft.distributions.resize(options.max_draft_tokens);
    for (Distribution& drafted : draft.distributions) drafted.reserve(num_ids);
  }
  distribution.reserve(num_ids);
}

// Braces, for they say in which order: options are refused before the bundle is looked at.
Engine::Engine(const std::filesystem::path& bundle, const pf_engine_options& options)
    : Engine{resolved(options), read_manifest(bundle), LoadProgress(options)} {}

Engine::Engine(const pf_engine_options& asked, Manifest manifest, LoadProgress&& progress)
    : device_(open_device(asked)),
      plan_(plan_on(device_, manifest, asked)),
      options_(planned(asked, plan_)),
      bundle_hash_(manifest.sha256),
      num_ids_(std::min(manifest.tokenizer_size, manifest.target.vocab_size)),
      eos_ids_(manifest.eos_ids),
      blocks_(plan_.num_blocks),
      prefix_tree_(blocks_, plan_.block_size, manifest.head && manifest.head->has_layer() ? 1 : 0),
      workspace_(num_ids_, options_) {
  progress.expect(manifest);
  load_models(manifest, progress);
  if (device_) {
    device_round_.emplace(device_, *target_, RoundModel{draft_.get(), likely_rows_ ? &*likely_rows_ : nullptr},
                          head_drafter_ ? head_drafter_->step() : RoundModel{}, num_ids_,
                          DeviceRound::Recording{recorded_pass_bytes(manifest, plan_.target_streamed_bytes > 0),
                                                 options_.max_draft_tokens});
  }
  sequences_.reserve(options_.num_sequences);
  if (options_.lookup_store) {
    store_.emplace(platform::path_of_text(options_.lookup_store), manifest.tokenizer.sha256, num_ids_,
                   options_.lookup_store_bytes);
  }
  costs_ = find_costs(manifest, progress);
  constexpr int32_t kFirstChunk = 16;
  constexpr double kMillisecond = 1e-3;
  prompt_pace_.emplace(kMillisecond * options_.max_wait_ms, options_.prefill_chunk,
                       costs_.verify.at(kFirstChunk, 0) / kFirstChunk);
  if (!device_round_) return;
  progress.tell(PF_LOAD_RECORDING);
  rehearse_rounds();
}

bool Engine::chooses_on_device(const pf_generate_options& options) const noexcept {
  const bool may_draw = options_.acceptance == PF_ACCEPT_REJECTION && !is_greedy(options);
  return device_round_ && !needs_host(options) && !may_draw;
}

pf_engine_info Engine::plan(const std::filesystem::path& bundle, const pf_engine_options& options) {
  const pf_engine_options checked = resolved(options);
  const Manifest manifest = read_manifest(bundle);
  try {
    return plan_on(open_device(checked), manifest, checked);
  } catch (const Error& error) {
    if (error.status() != PF_UNSUPPORTED) throw;
    return plan_memory(manifest, checked);
  }
}

pf_engine_info Engine::info() const {
  const std::lock_guard lock(mutex_);
  pf_engine_info info = plan_;
  info.num_free_blocks = blocks_.num_available();
  info.num_retained_blocks = prefix_tree_.num_unshared();
  info.is_calibrated = costs_.is_measured ? 1 : 0;
  return info;
}

void Engine::check() const {
  const std::lock_guard lock(mutex_);
  std::vector<int32_t> retained;
  prefix_tree_.append_blocks(retained);
  std::vector<std::span<const int32_t>> tables{retained};
  for (const Sequence* sequence : sequences_) tables.push_back(sequence->block_table());
  blocks_.check(tables);
}

CachedPrefix Engine::adopt(const PrefixTree::Match& prefix, int32_t max_tokens, int32_t num_own) {
  PrefixTree::Adopted adopted = prefix_tree_.adopt(prefix, num_blocks_for(max_tokens, kBlockSize), num_own);
  for (const PrefixTree::BlockCopy& copy : adopted.copies) {
    target_->cache().copy(copy.from, copy.to);
    if (draft_) draft_->cache().copy(copy.from, copy.to);
    if (KvCache* const cache = head_cache()) cache->copy(copy.from, copy.to);
  }
  return std::move(adopted.prefix);
}

Engine::OpenSequence::OpenSequence(Engine& engine, int32_t max_tokens, const PrefixTree::Match& prefix, int32_t num_own)
    : Sequence(engine.blocks_, kBlockSize, max_tokens, engine.adopt(prefix, max_tokens, num_own)), engine_(engine) {
  engine.sequences_.push_back(this);
}

Engine::OpenSequence::~OpenSequence() { std::erase(engine_.sequences_, this); }

void Engine::OpenSequence::retain(std::span<const int32_t> tokens) noexcept {
  const std::span<const int32_t> cached = tokens.first(num_target_tokens());
  engine_.prefix_tree_.retain(cached, hand_over());
}

Model& Engine::model(int32_t which) {
  if (which == PF_MODEL_TARGET) return *target_;
  if (which != PF_MODEL_DRAFT)
    fail(PF_INVALID_ARGUMENT, "model is ", which, ", neither PF_MODEL_TARGET nor PF_MODEL_DRAFT");
  if (!draft_) fail(PF_INVALID_ARGUMENT, "the bundle has no draft model");
  return *draft_;
}

void Engine::check_ids(std::span<const int32_t> ids) const {
  if (ids.empty()) fail(PF_INVALID_ARGUMENT, "there are no token ids: at least one is needed");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= num_ids_) {
      fail(PF_INVALID_ARGUMENT, "ids[", i, "] is ", ids[i], ", outside the vocabulary of ", num_ids_);
    }
  }
}

void Engine::compute_logits(int32_t which, std::span<const int32_t> ids, float* logits_out) {
  const std::lock_guard lock(mutex_);
  Model& chosen = model(which);
  check_ids(ids);
  const auto num_tokens = static_cast<int32_t>(std::min<size_t>(ids.size(), std::numeric_limits<int32_t>::max()));
  const int32_t limit = std::min(plan_.max_context, chosen.max_positions());
  if (num_tokens > limit) fail(PF_CONTEXT_FULL, num_tokens, " token ids, the context holds ", limit);
  OpenSequence sequence(*this, num_tokens);
  const Reservation room(sequence, num_tokens);
  const int32_t step = chosen.limits().max_outputs;
  const auto width = static_cast<size_t>(plan_.vocab_size);
  const std::span<const int32_t> logit_ids = chosen.logit_ids();
  const size_t known = logit_ids.empty() ? std::min<size_t>(width, chosen.num_logits()) : 0;
  for (int32_t begin = 0; begin < num_tokens; begin += step) {
    const int32_t num_rows = std::min(step, num_tokens - begin);
    const Logits logits = chosen.forward({.ids = ids.subspan(begin, num_rows),
                                          .positions = {},
                                          .tree_mask = {},
                                          .block_table = sequence.block_table(),
                                          .context = begin,
                                          .num_outputs = num_rows});
    for (int32_t row = 0; row < num_rows; ++row) {
      float* out = logits_out + width * (begin + row);
      std::copy_n(logits.row(row).data(), known, out);
      std::fill(out + known, out + width, -std::numeric_limits<float>::infinity());
      for (size_t i = 0; i < logit_ids.size(); ++i) out[logit_ids[i]] = logits.row(row)[i];
    }
  }
}

void Engine::time_pass(int32_t which, int32_t num_rows, int32_t context, std::span<double> seconds_out) {
  const std::lock_guard lock(mutex_);
  Model& chosen = model(which);
  const int32_t limit = std::min(plan_.max_context, chosen.max_positions());
  if (num_rows < 1 || num_rows > chosen.limits().max_rows) {
    fail(PF_INVALID_ARGUMENT, "num_rows is ", num_rows, ", allowed are 1 to ", chosen.limits().max_rows);
  }
  if (context < 0 || context > limit - num_rows) {
    fail(PF_INVALID_ARGUMENT, "context is ", context, ", allowed are 0 to ", limit - num_rows, " before ", num_rows,
         " rows");
  }
  OpenSequence sequence(*this, context + num_rows);
  const Reservation room(sequence, context + num_rows);
  for (const int32_t block_id : sequence.block_table()) chosen.cache().fill(block_id);
  std::vector<int32_t> ids(num_rows);
  for (int32_t i = 0; i < num_rows; ++i) ids[i] = i % num_ids_;
  for (double& seconds : seconds_out) {
    const auto start = std::chrono::steady_clock::now();
    chosen.forward({.ids = ids,
                    .positions = {},
                    .tree_mask = {},
                    .block_table = sequence.block_table(),
                    .context = context,
                    .num_outputs = std::min(num_rows, chosen.limits().max_outputs)});
    seconds = seconds_since(start);
  }
}

}  // namespace pilotfish
