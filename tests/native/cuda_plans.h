// Manifests, options and cards for tests of the plan of a GPU's memory.
#pragma once

#include "engine/memory_plan.h"
#include "engine/options.h"
#include "tiny_manifest.h"

namespace cuda_plans {

using namespace pilotfish;

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
// The tiny pair with caches that the CUDA kernels have.
inline const Manifest kPair =
    parse_manifest(tiny::replaced(tiny::kManifest, R"("cache_dtype": "f32")", R"("cache_dtype": "f16")"), "/bundle");

inline pf_engine_options cuda_options(int32_t max_context, uint64_t budget) {
  pf_engine_options options = default_engine_options();
  options.device = PF_DEVICE_CUDA;
  options.num_threads = 2;
  options.max_context = max_context;
  options.memory_budget_bytes = budget;
  options.prefill_chunk = 256;
  return options;
}

inline CudaDeviceInfo card(uint64_t free_bytes) { return {"Card", 13000, 90, 132, uint64_t{1} << 33, free_bytes}; }

// The packed int4 matrices of a Llama layer, int8 ends, as native/GRAPH.md packs them.
inline ModelEntry llama(int32_t hidden, int32_t inner, int32_t num_heads, int32_t num_layers, CacheType cache) {
  ModelEntry model = kPair.target;
  model.num_layers = num_layers;
  model.hidden_size = hidden;
  model.intermediate_size = inner;
  model.num_heads = model.num_kv_heads = num_heads;
  model.head_dim = hidden / num_heads;
  model.caches.assign(num_layers, {num_heads, model.head_dim});
  model.vocab_size = model.num_logits = 32000;
  model.max_positions = 4096;
  model.cache_type = cache;
  model.tensors.clear();
  const auto add = [&](const std::string& name, uint64_t rows, uint64_t columns, uint64_t group_bytes) {
    const uint64_t num_bytes = rows / 16 * (columns / 64) * group_bytes;
    model.tensors.push_back({name, TensorEntry::Type::kU8, {int64_t(num_bytes)}, 0, num_bytes});
  };
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    add("qkv", 3 * hidden, hidden, 576);
    add("o", hidden, hidden, 576);
    add("gate_up", 2 * inner, hidden, 576);
    add("down", hidden, inner, 576);
  }
  add("embedding", 32000, hidden, 1088);
  add("lm_head", 32000, hidden, 1088);
  return model;
}

}  // namespace cuda_plans
