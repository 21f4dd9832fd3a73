#include "sampling/row_math.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "sampling/row_select.h"

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> row(size);
  for (float& x : row) x = normal(random);
  return row;
}

void test_peak_is_the_lowest_index_of_the_largest() {
  for (const size_t size : {1, 15, 16, 17, 100, 1000}) {
    std::vector<float> row = random_row(size, 1);
    const auto largest = std::max_element(row.begin(), row.end());
    CHECK_EQ(pilotfish::find_peak(row).index, static_cast<int32_t>(largest - row.begin()));
    CHECK_EQ(pilotfish::find_peak(row).value, *largest);
    for (const size_t first : {size_t{0}, size / 3, size - 1}) {
      std::vector<float> tied = row;
      tied[first] = tied[size - 1] = 100;
      CHECK_EQ(pilotfish::find_peak(tied).index, static_cast<int32_t>(first));
    }
  }
  const std::vector<float> masked(20, -kInfinity);
  CHECK_EQ(pilotfish::find_peak(masked).index, 0);
}

void test_exp_against_the_library() {
  for (const size_t size : {1, 16, 31, 5000}) {
    std::vector<float> row = random_row(size, 2);
    row[0] = -200;  // underflows
    row[size / 2] = -kInfinity;
    row[size - 1] = 3;
    const float peak = pilotfish::find_peak(row).value;
    std::vector<float> found(size);
    const float sum = pilotfish::exp_into(row, peak, 0.7f, found.data());
    double expected_sum = 0;
    for (size_t i = 0; i < size; ++i) {
      const double x = double{row[i] - peak} * 0.7f;
      const double expected = std::exp(x);
      // The exponent is rounded, to 24 bits, and so is the polynomial.
      if (expected > 0) CHECK_NEAR(found[i], expected, (2.5e-7 - 1.2e-7 * x) * expected + 2e-38);
      expected_sum += expected;
    }
    CHECK_NEAR(sum, expected_sum, 1e-6 * expected_sum);
    CHECK_EQ(pilotfish::exp_sum(row, peak, 0.7f), sum);
  }
}

void test_moments() {
  for (const size_t size : {1, 16, 31, 5000}) {
    std::vector<float> row = random_row(size, 6);
    if (size > 1) row[1] = -kInfinity;
    const float peak = pilotfish::find_peak(row).value;
    const pilotfish::ExpMoments found = pilotfish::exp_moments(row, peak, 0.7f);
    double sum = 0, weighted = 0;
    for (const float x : row) {
      const double height = (double{x} - peak) * 0.7f;
      const double weight = std::exp(height);
      sum += weight;
      weighted += weight > 0 ? weight * height : 0;
    }
    CHECK_NEAR(found.sum, sum, 2e-6 * sum);
    CHECK_NEAR(found.weighted, weighted, 1e-5 * std::abs(weighted));
  }
}

void test_a_mask_leaves_the_bits_that_are_set() {
  for (const size_t size : {1, 15, 16, 33, 1000}) {
    const std::vector<float> row = random_row(size, 7);
    std::mt19937 random(8);
    std::vector<uint32_t> mask((size + 31) / 32);
    for (uint32_t& word : mask) word = random();
    std::vector<float> found(size);
    pilotfish::copy_masked(row, mask.data(), found.data());
    for (size_t i = 0; i < size; ++i) CHECK_EQ(found[i], (mask[i / 32] >> (i % 32) & 1) ? row[i] : -kInfinity);
  }
}

void test_selected_elements_are_the_large_ones() {
  for (const size_t size : {1, 15, 64, 65, 1000}) {
    const std::vector<float> row = random_row(size, 9);
    std::vector<float> peaks((size + pilotfish::kPeakBlock - 1) / pilotfish::kPeakBlock);
    pilotfish::block_peaks(row, peaks.data());
    for (const float least : {-kInfinity, -3.0f, 4.0f, 100.0f}) {
      std::vector<int32_t> ids(size);
      std::vector<float> values(size);
      const size_t count = pilotfish::select_at_least(row, peaks, least, ids.data(), values.data());
      size_t expected = 0;
      for (size_t i = 0; i < size; ++i) {
        if (row[i] < least) continue;
        CHECK(expected < count && ids[expected] == static_cast<int32_t>(i) && values[expected] == row[i]);
        ++expected;
      }
      CHECK_EQ(count, expected);
    }
  }
}

void test_not_a_number_is_not_hidden() {
  std::vector<float> row = random_row(100, 3);
  row[40] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(pilotfish::exp_sum(row, pilotfish::find_peak(row).value, 1)));
}

void test_subtract_and_multiply() {
  for (const size_t size : {3, 16, 37}) {
    std::vector<float> row = random_row(size, 4);
    const std::vector<float> before = row;
    const std::vector<float> other = random_row(size, 5);
    const float mass = pilotfish::subtract_positive(row, other.data(), 1);
    double expected = 0;
    for (size_t i = 0; i < size; ++i) {
      CHECK_EQ(row[i], std::max(before[i] - other[i], 0.0f));
      expected += row[i];
    }
    CHECK_NEAR(mass, expected, 1e-5 * expected);
    pilotfish::multiply(row, 0.5f);
    for (size_t i = 0; i < size; ++i) CHECK_EQ(row[i], 0.5f * std::max(before[i] - other[i], 0.0f));
  }
}

void test_block_peaks() {
  for (const size_t size : {1, 64, 65, 200}) {
    const std::vector<float> row = random_row(size, 6);
    std::vector<float> peaks((size + pilotfish::kPeakBlock - 1) / pilotfish::kPeakBlock);
    CHECK(pilotfish::block_peaks(row, peaks.data()));
    for (size_t block = 0; block < peaks.size(); ++block) {
      const auto begin = row.begin() + block * pilotfish::kPeakBlock;
      const auto end = row.begin() + std::min(size, (block + 1) * pilotfish::kPeakBlock);
      CHECK_EQ(peaks[block], *std::max_element(begin, end));
    }
    for (size_t i = 0; i < size; ++i) {
      std::vector<float> damaged = row;
      damaged[i] = std::nanf("");
      CHECK(!pilotfish::block_peaks(damaged, peaks.data()));
    }
  }
}

}  // namespace

int main() {
  test_peak_is_the_lowest_index_of_the_largest();
  test_exp_against_the_library();
  test_moments();
  test_a_mask_leaves_the_bits_that_are_set();
  test_selected_elements_are_the_large_ones();
  test_not_a_number_is_not_hidden();
  test_subtract_and_multiply();
  test_block_peaks();
  return check::result();
}
