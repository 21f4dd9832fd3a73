#include "sampling/shared_noise.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "sampling/all_widths.h"
#include "sampling/philox_lanes.h"

namespace pilotfish {
namespace {

using Floats = float __attribute__((vector_size(kPhiloxLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kPhiloxLanes * sizeof(int32_t))));
using Bits = uint32_t __attribute__((vector_size(kPhiloxLanes * sizeof(uint32_t))));
using Key = std::array<uint32_t, 2>;
using Purpose = RandomStream::Purpose;

PF_INLINE PhiloxLanes numbers_of(int32_t position, Purpose purpose) {
  return {
      .first = static_cast<uint32_t>(position), .second = static_cast<uint32_t>(purpose), .thirds = {}, .words = {}};
}

// Exponentially distributed numbers of random words: -ln(1 - x) for x = odd / 2^31, where `odd` is the word's upper 31
// bits, made odd. For x < 1 - sqrt(1/2) it is -ln(1 + y) of y = -x, exact where x is small; else 1 - x = 2^e (1 + y).
// The relative error is at most 3e-7 (minimax).
PF_INLINE void exponential_lanes(const std::array<uint32_t, kPhiloxLanes>& words, Floats& out) {
  constexpr float kUnit = 0x1p-31f;
  constexpr int32_t kSqrtHalf = 0x3F3504F3;
  Bits drawn;
  std::memcpy(&drawn, words.data(), sizeof drawn);
  const Ints odd = std::bit_cast<Ints>(drawn >> 1 | 1);
  const Floats x = __builtin_convertvector(odd, Floats) * kUnit;
  const Ints rest = std::bit_cast<Ints>(0x80000000u - std::bit_cast<Bits>(odd));
  const Ints bits = std::bit_cast<Ints>(__builtin_convertvector(rest, Floats) * kUnit);
  const Ints exponent = (bits - kSqrtHalf) >> 23;
  const Floats mantissa = std::bit_cast<Floats>(bits - (exponent << 23));
  const Floats y = exponent == 0 ? -x : mantissa - 1.0f;
  Floats series = y * 0.08700430572f - 0.1426748622f;
  series = series * y + 0.1491476922f;
  series = series * y - 0.1657758477f;
  series = series * y + 0.199630637f;
  series = series * y - 0.2500133704f;
  series = series * y + 0.3333391074f;
  series = y * y * (series * y - 0.5f) + y;
  out = -(__builtin_convertvector(exponent, Floats) * 0.6931471806f + series);
}

// Of a block that has its words: the least of its 64 numbers.
PF_INLINE void least_lanes(const PhiloxLanes& lanes, Floats& out) {
  exponential_lanes(lanes.words[0], out);
  out *= 1.0f / SharedNoise::kBlock;
}

void fill_block(const Key& key, int32_t position, int32_t block, float* out) {
  at_best_width([&]() PF_INLINED {
    constexpr int32_t kQuads = SharedNoise::kBlock / 4;  // of ids that share a block of random numbers
    static_assert(kQuads == kPhiloxLanes);
    PhiloxLanes of_block = numbers_of(position, Purpose::kBlockNoise);
    of_block.thirds.fill(static_cast<uint32_t>(block));
    run_philox(of_block, key);
    Floats least;
    least_lanes(of_block, least);
    PhiloxLanes lanes = numbers_of(position, Purpose::kNoise);
    for (int32_t i = 0; i < kQuads; ++i) lanes.thirds[i] = static_cast<uint32_t>(kQuads * block + i);
    run_philox(lanes, key);
    for (int32_t word = 0; word < 4; ++word) {
      Floats above;
      exponential_lanes(lanes.words[word], above);
      above += least;
      for (int32_t i = 0; i < kQuads; ++i) out[4 * i + word] = above[i];
    }
    out[of_block.words[1][0] % SharedNoise::kBlock] = least[0];
  });
}

void bound_blocks(const Key& key, int32_t position, std::span<const int32_t> blocks, const float* weights,
                  float* bounds) {
  at_best_width([&]() PF_INLINED {
    for (size_t begin = 0; begin < blocks.size(); begin += kPhiloxLanes) {
      const size_t count = std::min(kPhiloxLanes, blocks.size() - begin);
      PhiloxLanes lanes = numbers_of(position, Purpose::kBlockNoise);
      for (size_t i = 0; i < count; ++i) lanes.thirds[i] = static_cast<uint32_t>(blocks[begin + i]);
      run_philox(lanes, key);
      Floats least;
      least_lanes(lanes, least);
      Floats weight{};
      std::memcpy(&weight, weights + begin, count * sizeof(float));
      weight /= least;
      std::memcpy(bounds + begin, &weight, count * sizeof(float));
    }
  });
}

}  // namespace

void SharedNoise::fill(int32_t position, int32_t block, std::span<float, kBlock> out) const noexcept {
  fill_block(key_, position, block, out.data());
}

void SharedNoise::bound(int32_t position, std::span<const int32_t> blocks, const float* weights,
                        float* bounds) const noexcept {
  bound_blocks(key_, position, blocks, weights, bounds);
}

}  // namespace pilotfish
