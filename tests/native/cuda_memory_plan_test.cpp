// The plan of a GPU's memory: what it counts, that it is never less than the kernels take, and what does not fit.
#include "memory/cuda_memory_plan.h"

#include <algorithm>

#include "check.h"
#include "cuda_plans.h"

namespace {

using namespace cuda_plans;

constexpr uint64_t kAligned = 512;  // small allocations

Manifest with(const std::string& from, const std::string& to) {
  Manifest manifest = kPair;
  manifest.target = parse_manifest(tiny::replaced(tiny::kManifest, from, to), "/bundle").target;
  return manifest;
}

void test_formats_that_the_kernels_lack() {
  const std::string place = R"("max_positions": 2048, "cache_dtype": "f16"})";
  const auto formats = [&](const std::string& linear) {
    return with(place, R"("max_positions": 2048, "cache_dtype": "f16",
      "formats": {"linear": ")" +
                           linear + R"(", "embedding": "int8", "lm_head": "int8"}})");
  };
  CHECK(plan_memory(formats("int4_asym"), cuda_options(64, 0)).total_bytes > 0);
  CHECK(plan_memory(formats("f16"), cuda_options(64, 0)).total_bytes > 0);
  CHECK_ERROR(PF_UNSUPPORTED,
              "the target's linear weights are f32; the CUDA kernels have int4, int4_asym, int8 and f16",
              plan_memory(formats("f32"), cuda_options(64, 0)));
  const auto mixture = [&](const std::string& second) {
    return with(place, R"("max_positions": 2048, "cache_dtype": "f16",
      "formats": {"linear": "int4", "embedding": "int8", "lm_head": "int8"}, "mixture": {"int4": 0.9, ")" +
                           second + R"(": 0.1}})");
  };
  CHECK(plan_memory(mixture("int8"), cuda_options(64, 0)).total_bytes > 0);
  CHECK_ERROR(PF_UNSUPPORTED, "the target's linear (f32) weights are f32",
              plan_memory(mixture("f32"), cuda_options(64, 0)));
  CHECK_ERROR(PF_UNSUPPORTED, "the target's cache is f32",
              plan_memory(with(place, R"("max_positions": 2048, "cache_dtype": "f32"})"), cuda_options(64, 0)));
  Manifest narrow = kPair;
  narrow.target.caches = {{2, 40}, {2, 16}};
  narrow.target.cache_type = CacheType::kF16;
  CHECK(plan_memory(narrow, cuda_options(64, 0)).total_bytes > 0);
  narrow.target.cache_type = CacheType::kInt8;
  CHECK(plan_memory(narrow, cuda_options(64, 0)).total_bytes > 0);
  narrow.target.caches[0].head_dim = 42;
  CHECK_ERROR(PF_UNSUPPORTED, "the target's head_dim is 42, not a multiple of 4 as the CUDA kernels need",
              plan_memory(narrow, cuda_options(64, 0)));
  Manifest wide = kPair;
  wide.target.caches[1].head_dim = 512;
  CHECK(plan_memory(wide, cuda_options(64, 0)).total_bytes > 0);
  Manifest shared = kPair;
  shared.target.caches.pop_back();
  CHECK(plan_memory(shared, cuda_options(64, 0)).target_cache_bytes <
        plan_memory(kPair, cuda_options(64, 0)).target_cache_bytes);
}

void test_every_part_is_counted() {
  const pf_engine_info plan = plan_memory(kPair, cuda_options(1000, 0));
  CHECK_EQ(plan.total_bytes, plan.target_weight_bytes + plan.draft_weight_bytes + plan.target_cache_bytes +
                                 plan.draft_cache_bytes + plan.lookup_bytes + plan.activation_bytes +
                                 plan.runtime_bytes);
  CHECK_EQ(plan.runtime_bytes, kCudaContextBytes + 2 * kCudaSessionBytes);
  CHECK_EQ(plan.target_cache_bytes, uint64_t{2} * 1024 * 2 * 2 * 16 * 2);
  CHECK_EQ(plan.free_device_memory, uint64_t{0});
  // Attention's partial sums grow with the context, the linears' with the multiprocessors.
  CHECK(plan.activation_bytes > plan_memory(kPair, cuda_options(128, 0)).activation_bytes);
  const CudaDeviceInfo device = card(uint64_t{1} << 32);
  CHECK(plan.activation_bytes > plan_memory(kPair, cuda_options(1000, 0), &device).activation_bytes);
}

// Up to 16 share a round, of 64 rows: their logits, block tables and recorded rounds.
void test_sequences_that_share_rounds_are_counted() {
  const auto activations = [](int32_t num_sequences) {
    pf_engine_options options = cuda_options(1000, 0);
    options.num_sequences = num_sequences;
    const pf_engine_info plan = plan_memory(kPair, options);
    return plan.activation_bytes - cuda_rounding_bytes(plan.target_cache_bytes) -
           cuda_rounding_bytes(plan.draft_cache_bytes);
  };
  const uint64_t rows = PF_MOST_DRAFT_TOKENS - default_engine_options().max_draft_tokens;
  const uint64_t logits = rows * (kPair.target.num_logits + kPair.draft->num_logits) * sizeof(float);
  const RecordedPassBytes pass = recorded_pass_bytes(kPair, false);
  CHECK(activations(2) >= activations(1) + logits + most_shared_bytes(pass, 2));
  const uint64_t tables = 2 * 14 * 1000 * sizeof(int32_t), rounds = most_shared_bytes(pass, 16);
  CHECK(activations(16) >= activations(2) + rounds - most_shared_bytes(pass, 2) + tables - 2 * kAligned);
  CHECK(activations(16) <= activations(2) + rounds - most_shared_bytes(pass, 2) + tables + 2 * kAligned);
  CHECK_EQ(activations(17), activations(16));
}

// A head's partial sums lie in parts of 64 columns, as many as the compiled size has (attention_partials.cuh).
void test_partial_sums_of_wide_heads() {
  const auto activations = [](int32_t head_dim) {
    Manifest manifest = kPair;
    manifest.target.head_dim = head_dim;
    return plan_memory(manifest, cuda_options(2048, 0)).activation_bytes;
  };
  const uint64_t part = uint64_t{64} * (2048 / 128) * kPair.target.num_heads * (64 + 4) * 4;
  CHECK(activations(72) >= activations(64) + part);
  CHECK(activations(136) >= activations(128) + 2 * part);
}

// As lowbit_format.cuh lays an int4 weight out, and as the bundle does.
void test_repacked_weights_are_never_more_than_planned() {
  for (const uint64_t columns : {64, 128, 192, 576, 640, 1536, 4096, 11008}) {
    for (const uint64_t rows : {16, 48, 576, 49152}) {
      ModelEntry model = kPair.target;
      model.hidden_size = model.intermediate_size = model.head_dim = static_cast<int32_t>(columns);
      model.num_heads = 1;
      const uint64_t packed = (rows + 15) / 16 * ((columns + 63) / 64) * 576;
      const uint64_t repacked = (rows + 31) / 32 * ((columns + 127) / 128) * 2304;
      model.tensors = {{"layers.0.qkv", TensorEntry::Type::kU8, {int64_t(packed)}, 0, packed}};
      CHECK(cuda_repacked_bytes(model) >= repacked);
      CHECK(cuda_repacked_bytes(model) <= repacked + std::min(repacked, 17 * columns + 17 * 128) + 512);
      CHECK(cuda_weight_bytes(model) >= cuda_repacked_bytes(model));
      CHECK(cuda_weight_bytes(model) < cuda_repacked_bytes(model) + 2 * kMiB);
    }
  }
}

Manifest with_head(const std::string& format, const std::string& cache) {
  const std::string parts = R"("num_predictions": 0, "graphs": {@features@, @step@}, "cache":
      {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "max_positions": 2048, "cache_dtype": ")" +
                            cache + R"("})";
  Manifest manifest = parse_manifest(tiny::with_head("eagle", parts), "/bundle");
  manifest.draft.reset();
  manifest.head->format = format;
  manifest.head->tensors.push_back({"fc", TensorEntry::Type::kU8, {4096}, 0, 4096});
  return manifest;
}

void test_a_head_is_counted() {
  const Manifest manifest = with_head("int8", "f16");
  Manifest without = manifest;
  without.head.reset();
  const pf_engine_info plan = plan_memory(manifest, cuda_options(1000, 0));
  const pf_engine_info less = plan_memory(without, cuda_options(1000, 0));
  CHECK_EQ(plan.has_head, 1);
  CHECK(plan.head_weight_bytes >= 4096);
  // Keys and values of its layer, and 64 rows of the target's stream.
  CHECK_EQ(plan.head_cache_bytes, uint64_t{2} * 1024 * 2 * 16 * 2 + uint64_t{4} * 64 * manifest.target.hidden_size);
  CHECK_EQ(plan.runtime_bytes, less.runtime_bytes + 2 * kCudaSessionBytes);
  CHECK_EQ(plan.total_bytes - less.total_bytes, plan.head_weight_bytes + plan.head_cache_bytes + plan.activation_bytes -
                                                    less.activation_bytes + plan.runtime_bytes - less.runtime_bytes);
  CHECK_ERROR(PF_UNSUPPORTED, "the head's weights are f32; the CUDA kernels have int4, int4_asym, int8 and f16",
              plan_memory(with_head("f32", "f16"), cuda_options(64, 0)));
  CHECK_ERROR(PF_UNSUPPORTED, "the head's cache is f32", plan_memory(with_head("int8", "f32"), cuda_options(64, 0)));
}

// Of rows of 192 columns, which are padded to 256, an odd number of tiles.
void test_a_heads_repacked_weights_are_never_more_than_planned() {
  HeadEntry head = *with_head("int4", "f16").head;
  for (const uint64_t columns : {64, 192, 576, 4096}) {
    for (const uint64_t rows : {columns, 3 * columns}) {
      const uint64_t packed = (rows + 15) / 16 * ((columns + 63) / 64) * 576;
      const uint64_t repacked = (rows + 31) / 32 * ((columns + 127) / 128) * 2304;
      head.state_size = static_cast<int32_t>(columns);
      head.tensors = {{"o", TensorEntry::Type::kU8, {int64_t(packed)}, 0, packed}};
      CHECK(cuda_repacked_bytes(head) >= repacked);
      CHECK(cuda_repacked_bytes(head) <= 2 * repacked + 1024);
    }
  }
}

void test_what_is_free_shortens_the_context() {
  const CudaDeviceInfo roomy = card(uint64_t{1} << 32);
  const pf_engine_info whole = plan_memory(kPair, cuda_options(0, 0), &roomy);
  CHECK_EQ(whole.max_context, 2048);
  CHECK_EQ(whole.free_device_memory, roomy.free_bytes);
  const CudaDeviceInfo tight = card(whole.total_bytes - kCudaContextBytes - 1);
  const pf_engine_info less = plan_memory(kPair, cuda_options(0, 0), &tight);
  CHECK(less.max_context < 2048);
  CHECK(less.total_bytes <= tight.free_bytes + kCudaContextBytes);
  // A budget below it decides, one above it does not.
  CHECK_EQ(plan_memory(kPair, cuda_options(0, less.total_bytes - 1), &tight).max_context,
           less.max_context - kBlockSize);
  CHECK_EQ(plan_memory(kPair, cuda_options(0, uint64_t{1} << 40), &tight).max_context, less.max_context);
}

void test_what_does_not_fit_is_refused_with_numbers_and_remedy() {
  const CudaDeviceInfo full = card(20 * kMiB);
  CHECK_ERROR(PF_OUT_OF_MEMORY, "cuda:0, Card, has 20 of its 8192 MiB free, but 1 sequence(s) of 1024 tokens need",
              plan_memory(kPair, cuda_options(1024, 0), &full));
  CHECK_ERROR(PF_OUT_OF_MEMORY, "a smaller max_context", plan_memory(kPair, cuda_options(0, 0), &full));
  CHECK_ERROR(PF_OUT_OF_MEMORY, "target cache", plan_memory(kPair, cuda_options(0, uint64_t{1} << 40), &full));
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "memory_budget_bytes is 1048576", plan_memory(kPair, cuda_options(0, kMiB), &full));
}

void test_the_device_option() {
  pf_engine_options options = cuda_options(0, 0);
  options.ort_library = "x";
  options.device_index = 3;
  check_options(options);
  options.device_index = -1;
  CHECK_ERROR(PF_INVALID_ARGUMENT, "device_index is -1", check_options(options));
  options.device = PF_DEVICE_CPU;
  options.device_index = 1;
  CHECK_ERROR(PF_INVALID_ARGUMENT, "device_index is 1, allowed are 0 to 0", check_options(options));
}

}  // namespace

int main() {
  test_formats_that_the_kernels_lack();
  test_every_part_is_counted();
  test_sequences_that_share_rounds_are_counted();
  test_partial_sums_of_wide_heads();
  test_repacked_weights_are_never_more_than_planned();
  test_a_head_is_counted();
  test_a_heads_repacked_weights_are_never_more_than_planned();
  test_what_is_free_shortens_the_context();
  test_what_does_not_fit_is_refused_with_numbers_and_remedy();
  test_the_device_option();
  return check::result();
}
