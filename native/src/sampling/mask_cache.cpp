#include "sampling/mask_cache.h"

#include <algorithm>

#include "base/status.h"

namespace pilotfish {

MaskCache::MaskCache(pf_mask_callback callback, void* user, int32_t num_ids)
    : callback_(callback),
      user_(user),
      num_words_((static_cast<size_t>(num_ids) + 31) / 32),
      paths_(kMostPaths),
      words_(kMostPaths * num_words_) {}

std::span<const uint32_t> MaskCache::after(int32_t num_tokens, std::span<const int32_t> path) {
  if (num_tokens != num_tokens_) {
    num_tokens_ = num_tokens;
    num_paths_ = 0;
  }
  for (int32_t i = 0; i < std::min(num_paths_, kMostPaths); ++i) {
    const Path& known = paths_[i];
    if (std::ranges::equal(path, std::span(known.ids).first(known.size))) return words(i);
  }
  const int32_t index = num_paths_ % kMostPaths;
  const std::span<uint32_t> mask = words(index);
  std::ranges::fill(mask, 0);
  const int32_t result = callback_(user_, path.data(), path.size(), mask.data());
  if (result != 0) {
    num_tokens_ = -1;
    fail(PF_CALLBACK_FAILED, "the mask callback returned ", result, " after ", path.size(), " drafted tokens");
  }
  paths_[index].size = static_cast<int32_t>(path.size());
  std::ranges::copy(path, paths_[index].ids.begin());
  ++num_paths_;
  return mask;
}

}  // namespace pilotfish
