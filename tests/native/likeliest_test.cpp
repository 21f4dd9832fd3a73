#include "draft/likeliest.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "check.h"

namespace {

using pilotfish::Likeliest;
using pilotfish::Peak;

void check_against_sort(const std::vector<float>& row, int32_t count) {
  Likeliest likeliest(row.size());
  std::vector<Peak> expected;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] > -std::numeric_limits<float>::infinity()) expected.push_back({row[i], static_cast<int32_t>(i)});
  }
  std::stable_sort(expected.begin(), expected.end(), [](auto& a, auto& b) { return a.value > b.value; });
  expected.resize(std::min(expected.size(), size_t(count)));
  const auto found = likeliest.find(row, count);
  CHECK_EQ(found.size(), expected.size());
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    CHECK_EQ(found[i].index, expected[i].index);
    CHECK_EQ(found[i].value, expected[i].value);
  }
}

void test_random_rows() {
  std::mt19937 random(3);
  for (const size_t size : {1, 2, 63, 64, 65, 1000, 8192}) {
    for (const int32_t count : {2, 3, 8, 64}) {
      std::vector<float> row(size);
      for (float& value : row) value = static_cast<float>(random() % 50);  // with ties
      check_against_sort(row, count);
      for (float& value : row) value = static_cast<float>(random());
      check_against_sort(row, count);
    }
  }
}

void test_banned_tokens_are_left_out() {
  std::vector<float> row(200, -std::numeric_limits<float>::infinity());
  row[7] = 1;
  row[150] = 2;
  check_against_sort(row, 8);
  check_against_sort({3, 1}, 2);
}

}  // namespace

int main() {
  test_random_rows();
  test_banned_tokens_are_left_out();
  return check::result();
}
