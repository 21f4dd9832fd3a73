// The noise of draft and target: its bits, its distribution and its bounds.
#include "sampling/shared_noise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "check.h"
#include "sampling/random_stream.h"

namespace {

using pilotfish::philox;
using pilotfish::PhiloxBlock;
using pilotfish::SharedNoise;

constexpr uint32_t kNoise = 3, kBlockNoise = 4;  // RandomStream::Purpose
constexpr int32_t kBlock = SharedNoise::kBlock;

PhiloxBlock numbers(uint64_t seed, int32_t position, uint32_t purpose, int32_t index) {
  return philox({static_cast<uint32_t>(position), purpose, static_cast<uint32_t>(index), 0},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

int32_t odd_number(uint32_t word) { return static_cast<int32_t>(word / 2 | 1); }

// The same operations in the same order, one number at a time: what every instruction set and device must give.
float exponential(int32_t odd) {
  const float x = static_cast<float>(odd) * 0x1p-31f;
  const float rest = static_cast<float>(static_cast<int32_t>(0x80000000u - static_cast<uint32_t>(odd))) * 0x1p-31f;
  const auto bits = std::bit_cast<int32_t>(rest);
  const int32_t exponent = (bits - 0x3F3504F3) >> 23;
  const float mantissa = std::bit_cast<float>(static_cast<int32_t>(bits - (static_cast<uint32_t>(exponent) << 23)));
  const float y = exponent == 0 ? -x : mantissa - 1.0f;
  float series = y * 0.08700430572f - 0.1426748622f;
  for (const float next : {0.1491476922f, -0.1657758477f, 0.199630637f, -0.2500133704f, 0.3333391074f}) {
    series = series * y;
    series = series + next;
  }
  const float square = y * y;
  series = series * y - 0.5f;
  series = square * series + y;
  return -(static_cast<float>(exponent) * 0.6931471806f + series);
}

float noise_of(uint64_t seed, int32_t position, int32_t id) {
  const PhiloxBlock block = numbers(seed, position, kBlockNoise, id / kBlock);
  const float least = exponential(odd_number(block[0])) * (1.0f / kBlock);
  if (static_cast<uint32_t>(id % kBlock) == block[1] % kBlock) return least;
  return exponential(odd_number(numbers(seed, position, kNoise, id / 4)[id % 4])) + least;
}

std::array<float, kBlock> filled(uint64_t seed, int32_t position, int32_t block) {
  std::array<float, kBlock> noise;
  SharedNoise(seed).fill(position, block, noise);
  return noise;
}

void test_bits() {
  std::mt19937 random(1);
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, ~uint64_t{0} - 5}) {
    for (int repeat = 0; repeat < 100; ++repeat) {
      const auto position = static_cast<int32_t>(random() % 5000), block = static_cast<int32_t>(random() % 3000);
      const std::array<float, kBlock> noise = filled(seed, position, block);
      for (int32_t i = 0; i < kBlock; ++i) CHECK_EQ(noise[i], noise_of(seed, position, kBlock * block + i));
    }
  }
}

// However many blocks are asked for: their largest weight over their least noise.
void test_bounds() {
  std::mt19937 random(3);
  for (const size_t size : {0, 1, 5, 16, 17, 700}) {
    std::vector<int32_t> blocks(size);
    std::vector<float> weights(size), bounds(size);
    for (int32_t& block : blocks) block = static_cast<int32_t>(random() % 3000);
    for (float& weight : weights) weight = std::uniform_real_distribution<float>(0, 1)(random);
    SharedNoise(9).bound(77, blocks, weights.data(), bounds.data());
    for (size_t i = 0; i < size; ++i) {
      CHECK_EQ(bounds[i], weights[i] / std::ranges::min(filled(9, 77, blocks[i])));
    }
  }
}

// Against the logarithm in double precision, at the ends of the range too.
void test_accuracy() {
  std::mt19937 random(2);
  double worst = 0;
  const auto look_at = [&](int32_t odd) {
    const double exact = -std::log1p(-odd * 0x1p-31);
    worst = std::max(worst, std::abs(exponential(odd) / exact - 1));
  };
  for (int32_t i = 0; i < 200000; ++i) look_at(static_cast<int32_t>(random() / 2 | 1));
  for (int32_t i = 1; i < 100000; i += 2) {
    look_at(i);
    look_at(0x7FFFFFFF - (i - 1));
    look_at(0x257D8667 - 50000 + (i - 1));  // near 1 - sqrt(1/2)
    look_at(0x40000001 - 50000 + (i - 1));  // near 1/2
  }
  CHECK(worst < 3e-7);
}

// 20 equally likely intervals of an exponential variable: over ids, over positions, the least of a block, which of its
// ids has that, and how one id goes with its neighbour.
class Bins {
 public:
  explicit Bins(size_t num_bins) : counts_(num_bins) {}
  void add(double share) {
    ++counts_[std::min(counts_.size() - 1, static_cast<size_t>(share * counts_.size()))], ++num_;
  }
  // Pearson's chi-square.
  double statistic() const {
    double sum = 0;
    const double expected = double(num_) / counts_.size();
    for (const int count : counts_) sum += std::pow(count - expected, 2) / expected;
    return sum;
  }

 private:
  std::vector<int> counts_;
  int num_ = 0;
};

double share_of(double noise) { return -std::expm1(-noise); }

void test_distribution() {
  Bins over_ids(20), over_positions(20), least(20), place(64), pairs(25), ranks(25);
  for (int32_t i = 0; i < 20000; ++i) {
    const std::array<float, kBlock> noise = filled(5, 17, i), of_position = filled(5, i, 40);
    for (const float number : noise) over_ids.add(share_of(number));
    over_positions.add(share_of(of_position[7]));
    const auto smallest = std::ranges::min_element(noise);
    least.add(share_of(kBlock * double{*smallest}));
    place.add((static_cast<double>(smallest - noise.begin()) + 0.5) / kBlock);
    const auto cell = [](float x, float y) {
      return (std::floor(5 * share_of(x)) * 5 + std::floor(5 * share_of(y)) + 0.5) / 25;
    };
    pairs.add(cell(of_position[7], of_position[8]));
    ranks.add(cell(of_position[7], filled(5, i + 1, 40)[7]));
  }
  constexpr double kOf19 = 43.8, kOf24 = 51.2, kOf63 = 103.4;  // p = 0.001
  CHECK(over_ids.statistic() < kOf19);
  CHECK(over_positions.statistic() < kOf19);
  CHECK(least.statistic() < kOf19);
  CHECK(place.statistic() < kOf63);
  CHECK(pairs.statistic() < kOf24);
  CHECK(ranks.statistic() < kOf24);
}

void test_all_of_seed_position_and_id_count() {
  const float first = filled(1, 5, 8)[3];
  CHECK_EQ(first, filled(1, 5, 8)[3]);
  CHECK(first != filled(2, 5, 8)[3]);
  CHECK(first != filled(uint64_t{1} << 32 | 1, 5, 8)[3]);
  CHECK(first != filled(1, 6, 8)[3]);
  CHECK(first != filled(1, 5, 9)[3]);
  CHECK(first != filled(1, 5, 8)[4]);
}

}  // namespace

int main() {
  test_bits();
  test_bounds();
  test_accuracy();
  test_distribution();
  test_all_of_seed_position_and_id_count();
  return check::result();
}
