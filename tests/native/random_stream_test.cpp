#include "sampling/random_stream.h"

#include "check.h"

namespace {

using pilotfish::philox;
using pilotfish::RandomStream;

// Known answers of Random123, the authors' library: philox4x32, 10 rounds.
void test_known_answers() {
  constexpr uint32_t kOnes = 0xffffffff;
  CHECK((philox({0, 0, 0, 0}, {0, 0}) == pilotfish::PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  CHECK((philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
         pilotfish::PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK((philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
         pilotfish::PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

void test_uniform_depends_on_all_of_seed_position_and_purpose() {
  using Purpose = RandomStream::Purpose;
  const RandomStream stream(1);
  CHECK_EQ(stream.uniform(5, Purpose::kDraft), RandomStream(1).uniform(5, Purpose::kDraft));
  CHECK(stream.uniform(5, Purpose::kDraft) != stream.uniform(6, Purpose::kDraft));
  CHECK(stream.uniform(5, Purpose::kDraft) != stream.uniform(5, Purpose::kAccept));
  CHECK(stream.uniform(5, Purpose::kAccept) != stream.uniform(5, Purpose::kTarget));
  CHECK(stream.uniform(5, Purpose::kDraft) != RandomStream(uint64_t{1} << 32 | 1).uniform(5, Purpose::kDraft));
}

void test_uniform_is_uniform() {
  constexpr int kNumBins = 20;
  constexpr int kNumDraws = 100000;
  int counts[kNumBins] = {};
  for (int i = 0; i < kNumDraws; ++i) {
    const double u = RandomStream(7).uniform(i, RandomStream::Purpose::kTarget);
    CHECK(u >= 0 && u < 1);
    ++counts[static_cast<int>(u * kNumBins)];
  }
  double chi_square = 0;
  for (const int count : counts) chi_square += std::pow(count - kNumDraws / kNumBins, 2) / (kNumDraws / kNumBins);
  CHECK(chi_square < 43.8);  // 19 degrees of freedom, p = 0.001
}

}  // namespace

int main() {
  test_known_answers();
  test_uniform_depends_on_all_of_seed_position_and_purpose();
  test_uniform_is_uniform();
  return check::result();
}
