#include <windows.h>

#include "base/platform/pages.h"

namespace pilotfish::platform {

void* map_pages(size_t num_bytes) noexcept {
  return VirtualAlloc(nullptr, num_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_pages(void* pages, size_t) noexcept { VirtualFree(pages, 0, MEM_RELEASE); }

void prefer_huge_pages(void*, size_t) noexcept {}  // they need a privilege, and all of their memory at once

void make_resident(void*, size_t) noexcept {}

void unmap_file(void* bytes, size_t) noexcept { UnmapViewOfFile(bytes); }

void read_in_order(void*, size_t) noexcept {}

void return_free_heap() noexcept {}

}  // namespace pilotfish::platform
