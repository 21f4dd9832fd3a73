// The plan of a GPU's memory for models of known shapes, beside what was measured.
#include "check.h"
#include "cuda_plans.h"
#include "memory/cuda_memory_plan.h"

namespace {

using namespace cuda_plans;

void test_a_7b_target_with_a_draft() {
  const CudaDeviceInfo device = card(uint64_t{1} << 35);
  const auto plan = [&](CacheType cache, int32_t prefill_chunk, uint64_t budget = 0) {
    Manifest manifest = kPair;
    manifest.target = llama(4096, 11008, 32, 32, cache);
    manifest.draft = llama(1536, 4096, 12, 22, cache);
    pf_engine_options options = cuda_options(4096, budget);
    options.max_draft_tokens = 8;
    options.prefill_chunk = prefill_chunk;
    return plan_memory(manifest, options, &device);
  };
  const pf_engine_info wide = plan(CacheType::kF16, 256), narrow = plan(CacheType::kInt8, 64);
  // A key and a value of a head: 128 numbers each, and a scale of two bytes with int8.
  CHECK_EQ(wide.target_cache_bytes, uint64_t{4096} * 32 * 32 * 2 * 256);
  CHECK_EQ(narrow.target_cache_bytes, uint64_t{4096} * 32 * 32 * 2 * 130);
  CHECK_EQ(narrow.draft_cache_bytes, uint64_t{4096} * 22 * 12 * 2 * 130);
  // Nothing that the repacked weights need is left out, and little is added.
  const uint64_t packed = uint64_t{32} * (3 * 4096 + 4096 + 2 * 11008 + 11008) * 4096 / 1024 * 576 +
                          2 * uint64_t{32000} * 4096 / 1024 * 1088;
  CHECK(narrow.target_weight_bytes >= packed);
  CHECK(narrow.target_weight_bytes < packed + 8 * kMiB);
  CHECK(narrow.total_bytes <= uint64_t{6} << 30);
  // With a budget the rows of a prompt's pass are as many as fit.
  CHECK_EQ(plan(CacheType::kInt8, 0).prefill_chunk, 512);
  const pf_engine_info fitted = plan(CacheType::kInt8, 0, uint64_t{6} << 30);
  CHECK_EQ(fitted.max_context, 4096);
  CHECK(fitted.total_bytes <= uint64_t{6} << 30);
  CHECK(plan(CacheType::kInt8, 2 * fitted.prefill_chunk).total_bytes > uint64_t{6} << 30);
}

// MiB that an H200 was seen to use of a process, with every kind of request and full caches.
void test_a_7b_pair_takes_what_was_planned() {
  struct Seen {
    int32_t max_context, num_sequences, prefill_chunk;
    uint64_t used;
  };
  Manifest manifest = kPair;
  manifest.target = llama(4096, 11008, 32, 32, CacheType::kF16);
  manifest.draft = llama(1536, 4096, 12, 22, CacheType::kF16);
  const CudaDeviceInfo device = card(uint64_t{1} << 37);
  for (const Seen& seen : {Seen{512, 1, 512, 5215}, Seen{4096, 1, 512, 7497}, Seen{512, 4, 512, 6203},
                           Seen{512, 8, 512, 7499}, Seen{3232, 1, 64, 6809}}) {
    pf_engine_options options = cuda_options(seen.max_context, 0);
    options.num_sequences = seen.num_sequences;
    options.prefill_chunk = seen.prefill_chunk;
    options.max_draft_tokens = 15;
    const uint64_t planned = plan_memory(manifest, options, &device).total_bytes / kMiB;
    CHECK(planned >= seen.used);
    CHECK(planned <= seen.used + seen.used / 50);
  }
}

// The driver gives whole pages, and small tensors share them.
void test_allocations_are_rounded() {
  CHECK_EQ(cuda_rounding_bytes(0), uint64_t{0});
  CHECK_EQ(cuda_rounding_bytes(1), uint64_t{511});
  CHECK_EQ(cuda_rounding_bytes(kMiB), uint64_t{0});
  CHECK_EQ(cuda_rounding_bytes(kMiB + 1), kMiB - 1);
  CHECK_EQ(cuda_rounding_bytes(4 * kMiB), uint64_t{0});
}

// A 7B model's pass takes 0.45 MiB, one of a few layers less; each weight that streams comes to it.
void test_recorded_passes_count_kernels() {
  Manifest manifest = kPair;
  manifest.target = llama(4096, 11008, 32, 32, CacheType::kF16);
  manifest.draft = llama(1536, 4096, 12, 4, CacheType::kF16);
  const RecordedPassBytes pass = recorded_pass_bytes(manifest, false);
  CHECK(pass.target > 45 * kMiB / 100 && pass.target < 47 * kMiB / 100);
  CHECK(pass.draft < pass.target / 4);
  CHECK_EQ(pass.head, uint64_t{0});
  manifest.target.tensors[0].name = "layers.0.qkv";
  CHECK_EQ(recorded_pass_bytes(manifest, true).target, pass.target + kStreamedNodeBytes);
}

}  // namespace

int main() {
  test_a_7b_target_with_a_draft();
  test_a_7b_pair_takes_what_was_planned();
  test_allocations_are_rounded();
  test_recorded_passes_count_kernels();
  return check::result();
}
