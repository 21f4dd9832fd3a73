#include "compact.h"

#include <cassert>

namespace pilotfish {

void compact(KvCache& cache, std::span<const int32_t> block_table, int32_t first_slot, std::span<const int32_t> rows) {
  for (int32_t i = 0; i < static_cast<int32_t>(rows.size()); ++i) {
    assert(rows[i] >= i);
    if (rows[i] != i) cache.copy_slot(block_table, first_slot + rows[i], first_slot + i);
  }
}

}  // namespace pilotfish
