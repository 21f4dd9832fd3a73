// From the files of a bundle to models that run. What takes long overlaps: threads read and hash the weights, while
// this one opens ONNX Runtime and makes sessions of the graphs, which look at no weights.

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/pass_limits.h"
#include "base/platform/pages.h"
#include "bundle/bundle_files.h"
#include "bundle/weights_file.h"
#include "draft/make_head_drafter.h"
#include "engine/engine.h"
#include "engine/load_progress.h"
#include "memory/weight_streaming.h"

namespace pilotfish {
namespace {

struct LoadLimits {
  ModelLimits target, drafting;
};

LoadLimits limits_of(const Manifest& manifest, const pf_engine_options& options, const pf_engine_info& plan) {
  const ModelLimits alone{.num_threads = options.num_threads,
                          .max_rows = std::max(options.prefill_chunk, options.max_draft_tokens + 1),
                          .max_outputs = options.max_draft_tokens + 1,
                          .max_hidden = 0,
                          .max_context = plan.max_context,
                          .num_blocks = plan.num_blocks,
                          .block_size = plan.block_size};
  LoadLimits limits{alone, alone};
  limits.target.max_outputs = max_verified_rows(options);
  limits.target.max_rows = std::max(alone.max_rows, limits.target.max_outputs);
  limits.target.max_seqs = max_together(options);
  limits.target.max_hidden = max_hidden_rows(manifest, options);
  const bool streams_to_device = options.device == PF_DEVICE_CUDA && plan.target_streamed_bytes > 0;
  limits.target.most_weight_bytes = streams_to_device ? plan.target_weight_bytes : 0;
  limits.drafting.max_outputs = max_drafted_rows(options);
  limits.drafting.max_rows = std::max(alone.max_rows, max_rows_to_draft(options));
  limits.drafting.max_seqs = max_together(options);
  return limits;
}

BundleSource source_of(const Manifest& manifest, const pf_engine_options& options, LoadProgress& progress) {
  return {.folder = manifest.folder,
          .hashes = options.verify_hashes == PF_VERIFY_NEVER ? Hashes::kIgnored : Hashes::kCompared,
          .while_waiting = [&progress] { progress.tell_now_and_then(PF_LOAD_READING); }};
}

// Of the target's weights file, what the plan has no room for on the CPU.
std::vector<FileRange> mapped_ranges(const ModelEntry& target, const pf_engine_info& plan) {
  std::vector<FileRange> ranges;
  if (plan.target_streamed_bytes == 0) return ranges;
  const StreamedChoice choice = choose_streamed(target, plan.target_weight_bytes, StreamedFrom::kFile);
  for (const TensorEntry* tensor : choice.tensors) ranges.push_back({tensor->offset, tensor->num_bytes});
  return ranges;
}

}  // namespace

void Engine::load_models(const Manifest& manifest, LoadProgress& progress) {
  const BundleSource source = source_of(manifest, options_, progress);
  const auto start_reading = [&](const FileEntry& file, std::span<const FileRange> mapped = {}) {
    return std::make_unique<WeightsFile>(source, file, progress.num_read(), mapped);
  };
  const std::vector<FileRange> mapped = device_ ? std::vector<FileRange>{} : mapped_ranges(manifest.target, plan_);
  check_file(source, manifest.tokenizer);
  std::unique_ptr<WeightsFile> target_file = start_reading(manifest.target.weights, mapped), head_file, draft_file;
  if (manifest.head) head_file = start_reading(manifest.head->weights);
  // On a device this waits until the target's file is in no memory any more.
  if (manifest.draft && !device_) draft_file = start_reading(manifest.draft->weights);

  const std::shared_ptr<const Ort> ort = Ort::open(options_.ort_library);
  const LoadLimits limits = limits_of(manifest, options_, plan_);
  target_ = std::make_unique<Model>(ort, device_, source, manifest.target, std::move(target_file), limits.target);
  if (draft_file) {
    draft_ = std::make_unique<Model>(ort, device_, source, *manifest.draft, std::move(draft_file), limits.drafting);
  }
  platform::return_free_heap();  // of graphs and of a tokenizer, before the last weights come
  target_->finish_load();
  if (manifest.head) {
    head_ = std::make_unique<Head>(ort, device_, source, *manifest.head, std::move(head_file), *target_,
                                   options_.num_threads);
    head_drafter_ = make_head_drafter(*head_, manifest.target.hidden_size, num_ids_, limits.drafting);
    head_->end_load();
  }
  target_->end_load();
  if (manifest.draft && !draft_) {
    draft_file = start_reading(manifest.draft->weights);
    draft_ = std::make_unique<Model>(ort, device_, source, *manifest.draft, std::move(draft_file), limits.drafting);
  }
  if (draft_) start_drafting();
  progress.tell(PF_LOAD_READING);
}

void Engine::start_drafting() {
  draft_->finish_load();
  draft_->end_load();
  if (device_) likely_rows_.emplace(device_, draft_->num_logits(), DeviceRound::num_choices(*draft_, num_ids_));
  draft_rows_.emplace(*draft_, options_.prefill_chunk, likely_rows_ ? &*likely_rows_ : nullptr);
  drafter_.emplace(*draft_rows_, num_ids_, max_together(options_));
}

}  // namespace pilotfish
