#include "lookup/lookup_rates.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace pilotfish {
namespace {

constexpr size_t kLengths = 7;
constexpr size_t kKinds = 5;
constexpr float kNumGuessed = 12;
constexpr float kNumRemembered = 48;

// Counted over 65 greedy answers of a 135M model to prompts of seven kinds.
constexpr std::array<std::array<float, kKinds>, kLengths> kGuesses{{{0.28f, 0.69f, 0.15f, 0.13f, 0.09f},
                                                                    {0.55f, 0.76f, 0.29f, 0.12f, 0.06f},
                                                                    {0.60f, 0.82f, 0.32f, 0.15f, 0.06f},
                                                                    {0.75f, 0.85f, 0.43f, 0.15f, 0.06f},
                                                                    {0.82f, 0.93f, 0.53f, 0.15f, 0.05f},
                                                                    {0.89f, 0.96f, 0.55f, 0.15f, 0.05f},
                                                                    {0.93f, 0.99f, 0.60f, 0.15f, 0.05f}}};

DecayedRate rate_of(size_t index) { return {kGuesses[index / kKinds][index % kKinds], kNumGuessed, kNumRemembered}; }

template <size_t... kKind>
std::array<DecayedRate, kKinds> kinds_of(size_t length, std::index_sequence<kKind...>) {
  return {rate_of(length * kKinds + kKind)...};
}

template <size_t... kLength>
std::array<std::array<DecayedRate, kKinds>, kLengths> all_rates(std::index_sequence<kLength...>) {
  return {kinds_of(kLength, std::make_index_sequence<kKinds>())...};
}

}  // namespace

LookupRates::LookupRates() noexcept : rates_(all_rates(std::make_index_sequence<kNumLengths>())) {
  static_assert(kNumLengths == kLengths && kNumKinds == kKinds);
}

LookupRates::Key LookupRates::key(int32_t length, Agreement agreement, int32_t rank) noexcept {
  const int32_t bucket = length < 5 ? length - 1 : length < 8 ? 4 : length < 16 ? 5 : 6;
  const int32_t kind = agreement == Agreement::kOnce ? 0 : agreement == Agreement::kAlways ? 1 : 2 + std::min(rank, 2);
  return {static_cast<uint8_t>(bucket), static_cast<uint8_t>(kind)};
}

}  // namespace pilotfish
