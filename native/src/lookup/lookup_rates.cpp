#include "lookup/lookup_rates.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace pilotfish {
namespace {

constexpr size_t kLengths = 7;
constexpr size_t kKinds = 5;
constexpr float kNumGuessed = 12;
constexpr float kNumRemembered = 48;
constexpr float kLeastVariance = 0.03f;  // of the shift: a text's later parts may be of another kind
constexpr float kLeastRate = 0.01f;

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

float LookupRates::rate(Key key) const noexcept {
  const float mean = rates_[key.length][key.kind].mean();
  return mean / (mean + (1 - mean) * std::exp(-shift_.mean));
}

// Logistic regression on one weight by assumed-density filtering; a rate of its own learns what the shift leaves over.
void LookupRates::record(Key key, bool is_next) noexcept {
  const float expected = rate(key);
  const float surprise = (is_next ? 1.0f : 0.0f) - expected;
  shift_.variance = std::max(1 / (1 / shift_.variance + expected * (1 - expected)), kLeastVariance);
  shift_.mean += shift_.variance * surprise;
  DecayedRate& own = rates_[key.length][key.kind];
  own.record(std::clamp(own.mean() + surprise, kLeastRate, 1 - kLeastRate));
}

LookupRates::Key LookupRates::key(int32_t length, Agreement agreement, int32_t rank) noexcept {
  const int32_t bucket = length < 5 ? length - 1 : length < 8 ? 4 : length < 16 ? 5 : 6;
  const int32_t kind = agreement == Agreement::kOnce ? 0 : agreement == Agreement::kAlways ? 1 : 2 + std::min(rank, 2);
  return {static_cast<uint8_t>(bucket), static_cast<uint8_t>(kind)};
}

}  // namespace pilotfish
