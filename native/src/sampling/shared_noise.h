// The noise that a draft and its target share: of a position and a token id a number E, exponentially distributed with
// mean 1. -ln(E) is Gumbel noise, and the id with the largest weight / E, which is the one with the largest
// ln(weight) - ln(E), is drawn by the weights. Indexed by seed, position and id, so that whoever asks gets the same
// bits: on every instruction set, and on a device.
//
// It is made by blocks of 64 ids, from two streams of random numbers. The least of a block's 64 numbers is exponential
// with mean 1/64, any id is equally likely to have it, and what the others have above it is exponential with mean 1
// again, all independently, as exponential variables have no memory. So the least is made first, with the id that has
// it, and the others where they are asked for: a block's least number and largest weight bound its scores, and few
// blocks of a row need to be looked into, however flat it is.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "sampling/random_stream.h"

namespace pilotfish {

class SharedNoise {
 public:
  static constexpr int32_t kBlock = 64;  // ids 64 b .. 64 b + 63 are block b

  explicit SharedNoise(uint64_t seed) noexcept : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  // out[i] = E(position, kBlock * block + i). `position` is the index in the sequence of the token that is chosen.
  void fill(int32_t position, int32_t block, std::span<float, kBlock> out) const noexcept;
  // bounds[i] = weights[i] / the least E of blocks[i].
  void bound(int32_t position, std::span<const int32_t> blocks, const float* weights, float* bounds) const noexcept;

 private:
  std::array<uint32_t, 2> key_;
};

}  // namespace pilotfish
