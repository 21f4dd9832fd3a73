#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <utility>

#include "base/cores.h"
#include "base/pass_limits.h"
#include "base/status.h"
#include "bundle/bundle_files.h"
#include "device/cuda_library.h"
#include "draft/make_head_drafter.h"
#include "engine/memory_plan.h"
#include "engine/options.h"
#include "instruction_set.h"
#include "sampling/sampling_options.h"

namespace pilotfish {
namespace {

pf_engine_options resolved(pf_engine_options options) {
  check_options(options);
  instruction_set();  // a wrong choice in the environment shows here instead of in the first pass
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
  if (!device) return plan_memory(manifest, options);
  const CudaDeviceInfo found = device->info();
  return plan_memory(manifest, options, &found);
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
  for (Draft& draft : drafts) {
    if (options.acceptance != PF_ACCEPT_REJECTION) break;
    draft.distributions.resize(options.max_draft_tokens);
    for (Distribution& drafted : draft.distributions) drafted.reserve(num_ids);
  }
  distribution.reserve(num_ids);
}

Engine::Engine(const std::filesystem::path& bundle, const pf_engine_options& options)
    : Engine(resolved(options), bundle) {}

Engine::Engine(pf_engine_options resolved, const std::filesystem::path& bundle)
    : Engine(read_manifest(bundle), resolved) {}

Engine::Engine(Manifest manifest, const pf_engine_options& asked)
    : device_(open_device(asked)),
      plan_(plan_on(device_, manifest, asked)),
      options_(planned(asked, plan_)),
      num_ids_(std::min(manifest.tokenizer_size, manifest.target.vocab_size)),
      eos_ids_(manifest.eos_ids),
      blocks_(plan_.num_blocks),
      prefix_cache_(blocks_, plan_.block_size, manifest.head && manifest.head->has_layer() ? 1 : 0),
      workspace_(num_ids_, options_) {
  check_file(manifest.folder, manifest.tokenizer);
  load_models(manifest);
  if (device_) {
    device_round_.emplace(device_, *target_, RoundModel{draft_.get(), likely_rows_ ? &*likely_rows_ : nullptr},
                          head_drafter_ ? head_drafter_->step() : RoundModel{}, num_ids_);
  }
  sequences_.reserve(options_.num_sequences);
  if (options_.lookup_store) {
    store_.emplace(options_.lookup_store, manifest.tokenizer.sha256, num_ids_, options_.lookup_store_bytes);
  }
  costs_ = find_costs(manifest);
  if (device_round_) rehearse_rounds();
}

bool Engine::chooses_on_device(const pf_generate_options& options) const noexcept {
  const bool may_draw = options_.acceptance == PF_ACCEPT_REJECTION && !is_greedy(options);
  return device_round_ && DeviceRound::serves(options) && !may_draw;
}

void Engine::load_models(const Manifest& manifest) {
  const std::shared_ptr<const Ort> ort = Ort::open(options_.ort_library);
  const ModelLimits limits{.num_threads = options_.num_threads,
                           .max_rows = std::max(options_.prefill_chunk, options_.max_draft_tokens + 1),
                           .max_outputs = options_.max_draft_tokens + 1,
                           .max_hidden = 0,
                           .max_context = plan_.max_context,
                           .num_blocks = plan_.num_blocks,
                           .block_size = plan_.block_size};
  ModelLimits shared_limits = limits;  // of models whose passes requests share
  shared_limits.max_outputs = max_verified_rows(options_);
  shared_limits.max_rows = std::max(limits.max_rows, shared_limits.max_outputs);
  shared_limits.max_seqs = max_together(options_);
  ModelLimits drafting_limits = shared_limits;
  drafting_limits.max_outputs = max_drafted_rows(options_);
  drafting_limits.max_rows = std::max(limits.max_rows, max_rows_to_draft(options_));
  ModelLimits target_limits = shared_limits;
  target_limits.max_hidden = max_hidden_rows(manifest, options_);
  target_ = std::make_unique<Model>(ort, device_, manifest.folder, manifest.target, target_limits);
  if (manifest.head) {
    head_ = std::make_unique<Head>(ort, device_, manifest.folder, *manifest.head, *target_, options_.num_threads);
    head_drafter_ = make_head_drafter(*head_, manifest.target.hidden_size, num_ids_, drafting_limits);
    head_->end_load();
  }
  target_->end_load();
  if (!manifest.draft) return;
  draft_ = std::make_unique<Model>(ort, device_, manifest.folder, *manifest.draft, drafting_limits);
  draft_->end_load();
  if (device_) likely_rows_.emplace(device_, draft_->num_logits(), DeviceRound::num_choices(*draft_, num_ids_));
  draft_rows_.emplace(*draft_, options_.prefill_chunk, likely_rows_ ? &*likely_rows_ : nullptr);
  drafter_.emplace(*draft_rows_, num_ids_, max_together(options_));
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
  info.num_retained_blocks = num_retained_blocks();
  info.is_calibrated = costs_.is_measured ? 1 : 0;
  return info;
}

void Engine::check() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::span<const int32_t>> tables;
  for (const Sequence* sequence : sequences_) tables.push_back(sequence->block_table());
  prefix_cache_.append_tables(tables);
  blocks_.check(tables);
}

int32_t Engine::num_retained_blocks() const {
  std::vector<std::span<const int32_t>> tables;
  prefix_cache_.append_tables(tables);
  std::set<int32_t> retained;
  for (const auto table : tables) retained.insert(table.begin(), table.end());
  for (const Sequence* sequence : sequences_) {
    for (const int32_t block_id : sequence->block_table()) retained.erase(block_id);
  }
  return static_cast<int32_t>(retained.size());
}

CachedPrefix Engine::adopt(std::span<const int32_t> prompt, int32_t max_tokens) {
  PrefixCache::Adopted adopted = prefix_cache_.adopt(prompt, num_blocks_for(max_tokens, kBlockSize));
  if (adopted.copy) {
    target_->cache().copy(adopted.copy->from, adopted.copy->to);
    if (draft_) draft_->cache().copy(adopted.copy->from, adopted.copy->to);
    if (KvCache* const cache = head_cache()) cache->copy(adopted.copy->from, adopted.copy->to);
  }
  return std::move(adopted.prefix);
}

Engine::OpenSequence::OpenSequence(Engine& engine, int32_t max_tokens, std::span<const int32_t> prompt)
    : Sequence(engine.blocks_, kBlockSize, max_tokens, engine.adopt(prompt, max_tokens)), engine_(engine) {
  engine.sequences_.push_back(this);
}

Engine::OpenSequence::~OpenSequence() { std::erase(engine_.sequences_, this); }

void Engine::OpenSequence::retain(std::vector<int32_t> tokens) noexcept {
  tokens.resize(num_target_tokens());  // never longer, so nothing is allocated
  CachedPrefix ended = hand_over();
  if (!tokens.empty()) engine_.prefix_cache_.retain(std::move(tokens), std::move(ended));
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
  OpenSequence sequence(*this, num_tokens, {});
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
  OpenSequence sequence(*this, context + num_rows, {});
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
