#include "engine/cuda_formats.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/status.h"

namespace pilotfish {
namespace {

constexpr int32_t kHeadColumns = 4;  // a head has a multiple of them
constexpr std::array<std::string_view, 4> kWeightFormats{"int4", "int4_asym", "int8", "f16"};

void check_cache(const char* name, CacheType type, int32_t head_dim) {
  if (!is_on_gpus(type)) {
    fail(PF_UNSUPPORTED, "the ", name, "'s cache is ", name_of(type),
         ", which the CUDA kernels do not have: export the bundle again with --cache-dtype f16, or use "
         "device cpu");
  }
  if (head_dim % kHeadColumns != 0) {
    fail(PF_UNSUPPORTED, "the ", name, "'s head_dim is ", head_dim, ", not a multiple of ", kHeadColumns,
         " as the CUDA kernels need; use device cpu");
  }
}

void check_model(const char* name, const ModelEntry& model) {
  for (const auto& [part, format] : model.formats) {
    if (std::find(kWeightFormats.begin(), kWeightFormats.end(), format) != kWeightFormats.end()) continue;
    fail(PF_UNSUPPORTED, "the ", name, "'s ", part, " weights are ", format,
         "; the CUDA kernels have int4, int4_asym, int8 and f16: export the bundle again with one of these, or use "
         "device cpu");
  }
  for (const CacheShape& cache : model.caches) check_cache(name, model.cache_type, cache.head_dim);
}

void check_head(const HeadEntry& head) {
  if (std::ranges::find(kWeightFormats, head.format) == kWeightFormats.end()) {
    fail(PF_UNSUPPORTED, "the head's weights are ", head.format,
         "; the CUDA kernels have int4, int4_asym, int8 and f16: export the bundle again with --head-format int8, or "
         "use device cpu");
  }
  if (head.cache) check_cache("head", head.cache->type, head.cache->head_dim);
}

}  // namespace

void check_cuda_formats(const Manifest& manifest) {
  check_model("target", manifest.target);
  if (manifest.draft) check_model("draft", *manifest.draft);
  if (manifest.head) check_head(*manifest.head);
}

}  // namespace pilotfish
