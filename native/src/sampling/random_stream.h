// Random numbers indexed by what they decide instead of drawn in turn, so that a request's tokens depend on its seed
// and not on how many drafts were thrown away. Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3", 2011.
#pragma once

#include <array>
#include <cstdint>

namespace pilotfish {

using PhiloxBlock = std::array<uint32_t, 4>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::array<uint32_t, 2> kPhiloxFactors{0xD2511F53, 0xCD9E8D57};
inline constexpr std::array<uint32_t, 2> kPhiloxSteps{0x9E3779B9, 0xBB67AE85};  // of the key, a round

constexpr PhiloxBlock philox(PhiloxBlock counter, std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t first = uint64_t{kPhiloxFactors[0]} * counter[0];
    const uint64_t second = uint64_t{kPhiloxFactors[1]} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += kPhiloxSteps[0];
    key[1] += kPhiloxSteps[1];
  }
  return counter;
}

class RandomStream {
 public:
  enum class Purpose : uint32_t {
    kDraft,   // which token a draft proposes at a position, where it draws
    kAccept,  // whether the target keeps it
    kTarget,  // which token the target puts there instead
    // What draft and target share (shared_noise.h): the index is a fourth of the token id, or a block of ids.
    kNoise,
    kBlockNoise
  };

  explicit RandomStream(uint64_t seed) noexcept
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  // In [0, 1), with 53 random bits. `position` is the index in the sequence of the token being decided; `index` tells
  // candidates for it apart.
  double uniform(int32_t position, Purpose purpose, int32_t index = 0) const noexcept {
    const PhiloxBlock block = philox(
        {static_cast<uint32_t>(position), static_cast<uint32_t>(purpose), static_cast<uint32_t>(index), 0}, key_);
    return static_cast<double>((uint64_t{block[0]} << 32 | block[1]) >> 11) * 0x1p-53;
  }

 private:
  std::array<uint32_t, 2> key_;
};

}  // namespace pilotfish
