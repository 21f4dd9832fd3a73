// After a round the cache rows of the accepted path lie among those of rejected tokens: moves them together.
#pragma once

#include <cstdint>
#include <span>

#include "memory/kv_cache.h"

namespace pilotfish {

// Copies the cache's row at slot first_slot + rows[i] to slot first_slot + i, for each i in order; `rows` ascends, so
// that no row is overwritten before it is read. Keys are rotated by a token's position, which for a path is its place
// in it: what comes out has the bits that a prefill of the path writes.
void compact(KvCache& cache, std::span<const int32_t> block_table, int32_t first_slot, std::span<const int32_t> rows);

}  // namespace pilotfish
