// Tells damage of large data at the speed of memory. It is no cryptographic hash: whoever makes up data can make up its
// checksum too.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace pilotfish {

class Checksum {
 public:
  // Of all that update() was given, however it was divided. A changed word always changes its lane.
  void update(std::span<const std::byte> data) noexcept {
    num_bytes_ += data.size();
    if (num_pending_ > 0 || data.size() < kStripeBytes) data = fill_pending(data);
    for (; data.size() >= kStripeBytes; data = data.subspan(kStripeBytes)) add_stripe(data.data());
    if (!data.empty()) fill_pending(data);
  }

  // The object is used up.
  uint64_t finish() noexcept {
    if (num_pending_ > 0) {
      std::memset(pending_.data() + num_pending_, 0, kStripeBytes - num_pending_);
      add_stripe(pending_.data());
    }
    uint64_t sum = num_bytes_;
    for (const uint64_t lane : lanes_) {
      sum = (sum ^ lane) * kFactor;
      sum ^= sum >> 29;
    }
    return sum;
  }

 private:
  static constexpr size_t kLanes = 8;  // as many as hide the time of a multiplication
  static constexpr size_t kStripeBytes = kLanes * sizeof(uint64_t);
  static constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;  // odd, so that multiplying loses nothing

  void add_stripe(const std::byte* data) noexcept {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), data, kStripeBytes);
    for (size_t i = 0; i < kLanes; ++i) lanes_[i] = std::rotl((lanes_[i] ^ words[i]) * kFactor, 31);
  }

  // Returns what does not fit.
  std::span<const std::byte> fill_pending(std::span<const std::byte> data) noexcept {
    const size_t count = data.size() < kStripeBytes - num_pending_ ? data.size() : kStripeBytes - num_pending_;
    std::memcpy(pending_.data() + num_pending_, data.data(), count);
    num_pending_ += count;
    if (num_pending_ == kStripeBytes) {
      add_stripe(pending_.data());
      num_pending_ = 0;
    }
    return data.subspan(count);
  }

  std::array<uint64_t, kLanes> lanes_{1, 2, 3, 4, 5, 6, 7, 8};
  std::array<std::byte, kStripeBytes> pending_;
  size_t num_pending_ = 0;
  uint64_t num_bytes_ = 0;
};

}  // namespace pilotfish
