// Which elements of a row are large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pilotfish {

// Writes index and value of the elements that are at least `least`, in their order, and returns how many they are.
// `peaks` are block_peaks of the row; ids and values have room for the whole row.
size_t select_at_least(std::span<const float> row, std::span<const float> peaks, float least, int32_t* ids,
                       float* values);

}  // namespace pilotfish
