// Sixteen blocks of Philox at once; see random_stream.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pilotfish {

inline constexpr size_t kPhiloxLanes = 16;

// words[w][i] = word w of the block of the counter {first, second, thirds[i], 0}.
struct PhiloxLanes {
  uint32_t first, second;
  std::array<uint32_t, kPhiloxLanes> thirds;
  std::array<std::array<uint32_t, kPhiloxLanes>, 4> words;
};

void run_philox(PhiloxLanes& lanes, std::array<uint32_t, 2> key) noexcept;

}  // namespace pilotfish
