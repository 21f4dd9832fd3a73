// Memory straight from the system.
#pragma once

#include <cstddef>

namespace pilotfish::platform {

// Anonymous pages, zero and resident only where they were touched; nullptr where the system refuses them.
void* map_pages(size_t num_bytes) noexcept;
void unmap_pages(void* pages, size_t num_bytes) noexcept;
// A wish: a system without huge pages is only slower.
void prefer_huge_pages(void* pages, size_t num_bytes) noexcept;
// Makes the pages that have these bytes resident, which changes none of them: another wish.
void make_resident(void* bytes, size_t num_bytes) noexcept;

// Ends what File::map() returned.
void unmap_file(void* bytes, size_t num_bytes) noexcept;
// A wish for mapped bytes that are read from front to back, again and again: the system fetches what comes next, and
// lets go of these pages before any other.
void read_in_order(void* bytes, size_t num_bytes) noexcept;

// Gives the system back what malloc keeps of freed memory, where it can: the parsing of a tokenizer or a graph leaves
// tens of megabytes.
void return_free_heap() noexcept;

}  // namespace pilotfish::platform
