#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/platform/pages.h"

namespace pilotfish::platform {

void* map_pages(size_t num_bytes) noexcept {
  void* const pages = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void unmap_pages(void* pages, size_t num_bytes) noexcept { munmap(pages, num_bytes); }

void prefer_huge_pages([[maybe_unused]] void* pages, [[maybe_unused]] size_t num_bytes) noexcept {
#ifdef MADV_HUGEPAGE
  madvise(pages, num_bytes, MADV_HUGEPAGE);
#endif
}

void make_resident([[maybe_unused]] void* bytes, [[maybe_unused]] size_t num_bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  const size_t before = reinterpret_cast<uintptr_t>(bytes) % static_cast<size_t>(sysconf(_SC_PAGESIZE));
  madvise(static_cast<std::byte*>(bytes) - before, before + num_bytes, MADV_POPULATE_WRITE);
#endif
}

void unmap_file(void* bytes, size_t num_bytes) noexcept { munmap(bytes, num_bytes); }

void read_in_order(void* bytes, size_t num_bytes) noexcept { madvise(bytes, num_bytes, MADV_SEQUENTIAL); }

void return_free_heap() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace pilotfish::platform
