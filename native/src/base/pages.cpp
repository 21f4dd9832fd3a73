#include "base/pages.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "base/status.h"

namespace pilotfish {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

Pages::Pages(size_t num_bytes, Size size)
    : mapping_bytes_(num_bytes + (size == Size::kHuge ? kHugePageBytes : 1)), num_bytes_(num_bytes) {
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    fail(PF_OUT_OF_MEMORY, "the system refused ", num_bytes,
         " bytes; a smaller max_context, num_sequences or bundle needs less");
  }
  mapping_ = static_cast<std::byte*>(mapping);
  data_ = mapping_;
  if (size == Size::kHuge) {
    data_ += -reinterpret_cast<uintptr_t>(mapping_) % kHugePageBytes;
    madvise(mapping_, mapping_bytes_, MADV_HUGEPAGE);  // a wish: a kernel without huge pages is only slower
  }
}

Pages::Pages(Pages&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      data_(other.data_),
      num_bytes_(other.num_bytes_) {}

Pages::~Pages() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

void return_free_heap() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace pilotfish
