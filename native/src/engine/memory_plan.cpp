#include "engine/memory_plan.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/pass_limits.h"
#include "base/status.h"
#include "draft/make_head_drafter.h"
#include "engine/cuda_formats.h"
#include "engine/options.h"
#include "lookup/lookup_store.h"
#include "memory/cuda_memory_plan.h"
#include "memory/kv_blocks.h"
#include "memory/weight_streaming.h"

namespace pilotfish {
namespace {

constexpr int32_t kDefaultContext = 4096;
constexpr int32_t kLeastContext = 128;                  // below it, a context chosen to fit a budget is of no use
constexpr uint64_t kRuntimeBytes = uint64_t{22} << 20;  // pages of ONNX Runtime and this library in use, sessions
constexpr uint64_t kMiB = uint64_t{1} << 20;
// Rows of a prompt's pass unless the caller says: what is fastest, and what is left of it where memory is scarce.
constexpr int32_t kChunkOnCpu = 256, kChunkOnCuda = 512, kLeastChunk = 64;

uint64_t cache_bytes_per_token(const ModelEntry& model) {
  uint64_t num_bytes = 0;
  for (const CacheShape& cache : model.caches) {
    num_bytes += 2 * cache_row_bytes(model.cache_type, cache.head_dim) * cache.num_kv_heads;
  }
  return num_bytes;
}

// Tensors in the widest layer of a pass: the residual stream before and after, attention's input and output and the
// middle of the MLP, whole and gated. They are not all alive at once, which makes up for their quantised copies and the
// arena's rounding: measured by samples/bench_memory.py.
uint64_t pass_bytes(const ModelEntry& model, uint64_t num_rows, uint64_t num_outputs) {
  const uint64_t attention = uint64_t{2} * (model.num_heads + model.num_kv_heads) * model.head_dim;
  const uint64_t row = 2 * uint64_t(model.hidden_size) + attention + 3 * uint64_t(model.intermediate_size);
  return sizeof(float) * num_rows * row + sizeof(float) * num_outputs * model.num_logits;
}

// What tokens are chosen with: the sampler's rows of scores and candidates, and a distribution, which is ids and
// probabilities; a row of the draft's or head's logits in the order of ids where they are not; and for acceptance by
// rejection the distribution of every position that requests drafted who share a pass.
uint64_t choice_bytes(const Manifest& manifest, const pf_engine_options& options) {
  constexpr uint64_t kSamplerRows = 9, kDistributionRows = 2;
  const uint64_t num_maps = (manifest.draft && !manifest.draft->logit_ids.empty() ? 1 : 0) +
                            (manifest.head && !manifest.head->logit_ids.empty() ? 1 : 0);
  const bool draws = options.acceptance == PF_ACCEPT_REJECTION;
  const uint64_t num_drawn = draws ? uint64_t(max_together(options)) * options.max_draft_tokens : 0;
  const uint64_t num_rows = kSamplerRows + (1 + num_drawn) * kDistributionRows + num_maps;
  return num_rows * sizeof(float) * manifest.target.vocab_size;
}

// Of a model or a head.
template <class Entry>
uint64_t weight_bytes(const Entry& entry, const pf_engine_options& options) {
  if (options.device == PF_DEVICE_CUDA) return cuda_weight_bytes(entry);
  return host_weight_bytes(entry.weights.num_bytes);
}

uint64_t activation_bytes(const Manifest& manifest, const pf_engine_options& options, const pf_engine_info& plan,
                          int32_t num_sms) {
  const int32_t num_outputs = options.max_draft_tokens + 1;
  const int32_t num_rows = std::max(options.prefill_chunk, num_outputs);
  const int32_t num_verified = max_verified_rows(options);
  if (options.device == PF_DEVICE_CUDA) {
    const CudaPassSizes sizes{.num_rows = std::max(num_rows, num_verified),
                              .num_outputs = num_verified,
                              .max_context = plan.max_context,
                              .num_sms = num_sms,
                              .max_seqs = max_together(options),
                              .streams = plan.target_streamed_bytes > 0};
    uint64_t rounding = 0;
    for (const uint64_t cache : {plan.target_cache_bytes, plan.draft_cache_bytes, plan.head_cache_bytes}) {
      rounding += cuda_rounding_bytes(cache);
    }
    return cuda_activation_bytes(manifest, sizes, options.max_draft_tokens) + head_buffer_bytes(manifest, options) +
           rounding;
  }
  const uint64_t target = pass_bytes(manifest.target, std::max(num_rows, num_verified), num_verified);
  const uint64_t draft = manifest.draft ? pass_bytes(*manifest.draft, std::max(num_rows, max_rows_to_draft(options)),
                                                     max_drafted_rows(options))
                                        : 0;
  return target + draft + choice_bytes(manifest, options) + head_buffer_bytes(manifest, options);
}

// What depends neither on the context nor on the rows of a prompt's pass.
pf_engine_info constant_parts(const Manifest& manifest, const pf_engine_options& options,
                              const CudaDeviceInfo* device) {
  const bool on_cuda = options.device == PF_DEVICE_CUDA;
  pf_engine_info plan{};
  plan.struct_size = sizeof plan;
  plan.has_draft = manifest.draft ? 1 : 0;
  plan.has_head = manifest.head ? 1 : 0;
  plan.vocab_size = manifest.target.vocab_size;
  plan.num_threads = options.num_threads;
  plan.block_size = kBlockSize;
  plan.target_weight_bytes = weight_bytes(manifest.target, options);
  plan.draft_weight_bytes = manifest.draft ? weight_bytes(*manifest.draft, options) : 0;
  plan.head_weight_bytes = manifest.head ? weight_bytes(*manifest.head, options) : 0;
  plan.runtime_bytes = on_cuda ? cuda_runtime_bytes(manifest) : kRuntimeBytes;
  plan.program_bytes = on_cuda ? 0 : options.program_bytes;
  plan.free_device_memory = device ? device->free_bytes : 0;
  return plan;
}

void set_context(const Manifest& manifest, int32_t max_context, const pf_engine_options& options, int32_t num_sms,
                 pf_engine_info& plan) {
  const int32_t num_sequences = options.num_sequences;
  const uint64_t store_bytes = options.lookup_store ? LookupStore::num_bytes(options.lookup_store_bytes) : 0;
  plan.max_context = max_context;
  plan.num_blocks = num_sequences * num_blocks_for(max_context, kBlockSize);
  plan.num_free_blocks = plan.num_blocks;
  const uint64_t num_tokens = uint64_t(plan.num_blocks) * kBlockSize;
  plan.target_cache_bytes = num_tokens * cache_bytes_per_token(manifest.target);
  plan.head_cache_bytes = head_cache_bytes(manifest, options, num_tokens);
  plan.draft_cache_bytes = manifest.draft ? num_tokens * cache_bytes_per_token(*manifest.draft) : 0;
  plan.activation_bytes = activation_bytes(manifest, options, plan, num_sms);
  plan.lookup_bytes = num_sequences * LookupIndex::num_bytes(max_context) + store_bytes;
  plan.total_bytes = plan.target_weight_bytes + plan.draft_weight_bytes + plan.target_cache_bytes +
                     plan.draft_cache_bytes + plan.head_weight_bytes + plan.head_cache_bytes + plan.lookup_bytes +
                     plan.activation_bytes + plan.runtime_bytes + plan.program_bytes;
}

// The largest total that is allowed; 0: no limit. What is free was read when the context was there.
uint64_t limit_of(const pf_engine_options& options, const CudaDeviceInfo* device, uint64_t host_bytes) {
  const uint64_t budget = options.memory_budget_bytes;
  // Caches that are planned are not touched before they are used: who gives a budget may have a reason for more.
  if (!device) return budget > 0 || options.device != PF_DEVICE_CPU ? budget : host_bytes;
  const uint64_t room = device->free_bytes + kCudaContextBytes;
  return budget > 0 && room > 0 ? std::min(budget, room) : std::max(budget, room);
}

[[noreturn]] void refuse(const pf_engine_info& plan, const pf_engine_options& options, const CudaDeviceInfo* device,
                         uint64_t host_bytes) {
  if (!device) {
    fail(PF_OUT_OF_MEMORY, "this process may have ", host_bytes / kMiB, " MiB of memory, but ", options.num_sequences,
         " sequence(s) of ", plan.max_context, " tokens need ", plan.total_bytes / kMiB, " MiB:\n", describe(plan),
         "  a smaller max_context or num_sequences, or a smaller bundle makes room; a memory budget is taken as it is");
  }
  fail(
      PF_OUT_OF_MEMORY, "cuda:", options.device_index, ", ", device->name, ", has ", device->free_bytes / kMiB,
      " of its ", device->total_bytes / kMiB, " MiB free, but ", options.num_sequences, " sequence(s) of ",
      plan.max_context, " tokens need ", plan.total_bytes / kMiB, " MiB:\n", describe(plan),
      "  a smaller max_context or num_sequences, a smaller bundle, or ending the processes that nvidia-smi lists makes "
      "room");
}

void check_fits(const pf_engine_info& plan, const pf_engine_options& options, const CudaDeviceInfo* device,
                uint64_t host_bytes) {
  const uint64_t budget = options.memory_budget_bytes;
  if (budget > 0 && plan.total_bytes > budget) {
    fail(PF_BUDGET_TOO_SMALL, "memory_budget_bytes is ", budget, " (", budget / kMiB, " MiB), but ",
         options.num_sequences, " sequence(s) of ", plan.max_context, " tokens need ", plan.total_bytes, " (",
         plan.total_bytes / kMiB, " MiB):\n", describe(plan));
  }
  const uint64_t limit = limit_of(options, device, host_bytes);
  if (limit > 0 && plan.total_bytes > limit) refuse(plan, options, device, host_bytes);
  const bool locks_pages = options.device == PF_DEVICE_CUDA && host_bytes > 0;
  if (locks_pages && plan.target_streamed_bytes > host_bytes) {
    fail(PF_OUT_OF_MEMORY, plan.target_streamed_bytes / kMiB,
         " MiB of weights are to stay in page-locked host memory, of which this process may have ", host_bytes / kMiB,
         "; a larger memory budget streams fewer");
  }
}

void set_streamed(const StreamedChoice& choice, pf_engine_info& plan) {
  plan.target_weight_bytes = choice.resident_bytes;
  plan.target_streamed_bytes = choice.streamed_bytes;
}

// The plan within a limit, 0: none, of total_bytes, or the least where nothing is. `streamed`: weights of the target
// that are not in the engine's memory; nullptr: none.
pf_engine_info plan_within(uint64_t limit, const Manifest& manifest, const pf_engine_options& asked,
                           const CudaDeviceInfo* device, const StreamedChoice* streamed) {
  const int32_t max_positions = manifest.target.max_positions;
  pf_engine_options options = asked;
  if (asked.prefill_chunk == 0) {
    options.prefill_chunk = asked.device == PF_DEVICE_CUDA ? kChunkOnCuda : kChunkOnCpu;
  }
  const int32_t wanted = asked.max_context > 0 ? asked.max_context : std::min(max_positions, kDefaultContext);
  const int32_t least = asked.max_context > 0 ? wanted : std::min(wanted, kLeastContext);
  const int32_t num_sms = device ? device->num_sms : kMostMultiprocessors;

  pf_engine_info plan = constant_parts(manifest, options, device);
  if (streamed) set_streamed(*streamed, plan);
  const auto is_too_large = [&] { return limit > 0 && plan.total_bytes > limit; };
  set_context(manifest, wanted, options, num_sms, plan);
  while (is_too_large() && asked.prefill_chunk == 0 && options.prefill_chunk > kLeastChunk) {
    options.prefill_chunk /= 2;
    set_context(manifest, wanted, options, num_sms, plan);
  }
  while (is_too_large() && plan.max_context > least) {
    const int32_t fewer = (plan.max_context - 1) / kBlockSize * kBlockSize;
    set_context(manifest, std::max(fewer, least), options, num_sms, plan);
  }
  plan.prefill_chunk = options.prefill_chunk;
  return plan;
}

// Of a plan that fits with all streamed.
void stream_no_more_than_needed(uint64_t limit, const ModelEntry& target, StreamedFrom from, pf_engine_info& plan) {
  const uint64_t others = plan.total_bytes - plan.target_weight_bytes;
  set_streamed(choose_streamed(target, limit - others, from), plan);
  plan.total_bytes = others + plan.target_weight_bytes;
}

}  // namespace

pf_engine_info plan_memory(const Manifest& manifest, const pf_engine_options& asked, const CudaDeviceInfo* device,
                           uint64_t host_bytes) {
  const int32_t max_positions = manifest.target.max_positions;
  if (asked.max_context > max_positions) {
    fail(PF_INVALID_ARGUMENT, "max_context is ", asked.max_context, ", the model's limit is ", max_positions);
  }
  if (asked.device == PF_DEVICE_CUDA) check_cuda_formats(manifest);
  const uint64_t limit = limit_of(asked, device, host_bytes);
  pf_engine_info plan = plan_within(limit, manifest, asked, device, nullptr);
  if (limit > 0 && plan.total_bytes > limit) {
    const StreamedFrom from = asked.device == PF_DEVICE_CUDA ? StreamedFrom::kHost : StreamedFrom::kFile;
    const StreamedChoice all = stream_all(manifest.target, from);
    if (all.resident_bytes < plan.target_weight_bytes) {
      plan = plan_within(limit, manifest, asked, device, &all);
      if (plan.total_bytes <= limit) stream_no_more_than_needed(limit, manifest.target, from, plan);
    }
  }
  check_fits(plan, asked, device, host_bytes);
  return plan;
}

std::string describe(const pf_engine_info& plan) {
  std::ostringstream table;
  const auto line = [&](const char* name, uint64_t num_bytes) {
    table << "  " << std::left << std::setw(16) << name << std::right << std::fixed << std::setprecision(1)
          << std::setw(10) << static_cast<double>(num_bytes) / kMiB << " MiB\n";
  };
  line("target weights", plan.target_weight_bytes);
  line("draft weights", plan.draft_weight_bytes);
  line("target cache", plan.target_cache_bytes);
  line("draft cache", plan.draft_cache_bytes);
  if (plan.has_head == 1) {
    line("head weights", plan.head_weight_bytes);
    line("head cache", plan.head_cache_bytes);
  }
  line("lookup", plan.lookup_bytes);
  line("activations", plan.activation_bytes);
  line("runtime", plan.runtime_bytes);
  if (plan.program_bytes > 0) line("program", plan.program_bytes);
  line("total", plan.total_bytes);
  if (plan.target_streamed_bytes > 0) line("streamed weights", plan.target_streamed_bytes);
  return table.str();
}

}  // namespace pilotfish
