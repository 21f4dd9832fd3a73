#include "base/pages.h"

#include <cstdint>
#include <utility>

#include "base/platform/pages.h"
#include "base/status.h"

namespace pilotfish {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

Pages::Pages(size_t num_bytes, Size size)
    : mapping_bytes_(num_bytes + (size == Size::kHuge ? kHugePageBytes : 1)), num_bytes_(num_bytes) {
  mapping_ = static_cast<std::byte*>(platform::map_pages(mapping_bytes_));
  if (!mapping_) {
    fail(PF_OUT_OF_MEMORY, "the system refused ", num_bytes,
         " bytes; a smaller max_context, num_sequences or bundle needs less");
  }
  data_ = mapping_;
  if (size == Size::kHuge) {
    data_ += -reinterpret_cast<uintptr_t>(mapping_) % kHugePageBytes;
    platform::prefer_huge_pages(mapping_, mapping_bytes_);
  }
}

Pages::Pages(Pages&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      data_(other.data_),
      num_bytes_(other.num_bytes_) {}

Pages::~Pages() {
  if (mapping_) platform::unmap_pages(mapping_, mapping_bytes_);
}

}  // namespace pilotfish
