// The low-bit linear against a double oracle; every row count 1..64 bit-equal to one-row passes; overlapped chains
// bit-equal to synchronised ones. `--small` runs the shapes that compute-sanitizer can afford.
#include <cstring>

#include "gpu_test.h"
#include "lowbit_linear_fixture.h"

namespace pilotfish::cuda::test {
namespace {

// Relative norm of the error; an f16 result is rounded at 2^-11.
constexpr double tolerance(OutputType type) { return type == OutputType::kF16 ? 5e-4 : 5e-5; }

void check(const Case& c, int row_step) {
  static uint64_t seed = std::random_device{}();
  Fixture fixture(c, ++seed);
  std::vector<std::vector<uint8_t>> single;
  for (int row = 0; row < kMaxLinearRows; ++row) single.push_back(fixture.run(row, 1));
  double worst = 0;
  for (const int row : {0, 37, 63}) {
    const double error = fixture.relative_error(row, single[row]);
    if (!(error <= worst)) worst = error;
  }
  expect(worst <= tolerance(c.output_type), "oracle", c.shape, c.plan, 1, worst);
  for (int rows = 1; rows <= kMaxLinearRows; rows += row_step) {
    const std::vector<uint8_t> bytes = fixture.run(0, rows);
    const size_t row_bytes = bytes.size() / rows;
    for (int row = 0; row < rows; ++row) {
      const bool same = std::memcmp(bytes.data() + row * row_bytes, single[row].data(), row_bytes) == 0;
      expect(same, "row bits", c.shape, c.plan, rows, row);
      if (!same) break;
    }
  }
  std::printf("%s N=%-6d K=%-6d %s %-3d %s%s%s%s%s: relative error %.2e\n", name_of(c.shape.format),
              c.shape.out_features, c.shape.in_features, c.plan.is_resident ? "resident" : "blocks", c.plan.num_blocks,
              c.output_type == OutputType::kF16 ? "f16" : "f32", c.with_bias ? " bias" : "",
              c.activation == Activation::kSwiGlu ? " swiglu" : "", c.with_residual ? " residual" : "",
              c.with_norms ? " norms" : "", worst);
  std::fflush(stdout);
}

void check_formats_and_plans(int out_features, int in_features, int row_step) {
  DeviceLimits limits;
  CUDA_CHECK(read_device_limits(&limits));
  for (const WeightFormat format : kFormats) {
    const LowbitShape shape{format, in_features, out_features};
    const LowbitPlan plan = plan_lowbit_linear(shape, limits);
    check({shape, plan}, row_step);
    if (plan.is_resident) check({shape, {8}}, row_step);
  }
}

void check_small(int row_step) {
  for (const WeightFormat format : kFormats) {
    for (const int num_blocks : {1, 2, 5, 24}) {
      check({{format, 1536, 576}, {num_blocks}, OutputType::kF32, Activation::kSwiGlu, true, true}, row_step);
    }
    check({{format, 1536, 576}, {18, true}, OutputType::kF32, Activation::kSwiGlu, true, true}, row_step);
    check({{format, 4096, 64}, {2, true}, OutputType::kF32, Activation::kNone, true, true}, row_step);
    check({{format, 576, 200}, {3}, OutputType::kF16, Activation::kNone, true, true}, row_step);
    check({{format, 576, 200}, {3}, OutputType::kF32, Activation::kNone, true, true, true}, row_step);
    check({{format, 576, 200}, {7, true}, OutputType::kF16, Activation::kNone, true, true}, row_step);
    check({{format, 576, 200}, {7, true}, OutputType::kF32, Activation::kNone, true, true, true}, row_step);
    check({{format, 3000, 200}, {7, true}, OutputType::kF32, Activation::kNone, true, true, true}, row_step);
    // Blocks that end one row group, see the next one whole and begin a third.
    check(
        {{format, 576, 3072}, {format == WeightFormat::kInt8 ? 8 : 5}, OutputType::kF32, Activation::kNone, true, true},
        row_step);
    check({{format, 40, 8}, {1}, OutputType::kF32, Activation::kNone, false, false}, row_step);
    check({{format, 40, 8}, {1, true}, OutputType::kF32, Activation::kNone, false, false}, row_step);
  }
}

void check_f16(int row_step) {
  constexpr WeightFormat kF16 = WeightFormat::kF16;
  check({{kF16, 1536, 576}, {18, true}, OutputType::kF32, Activation::kSwiGlu, true, true}, row_step);
  check({{kF16, 4096, 64}, {2, true}, OutputType::kF32, Activation::kNone, true, true}, row_step);
  check({{kF16, 584, 200}, {7, true}, OutputType::kF16, Activation::kNone, true, true}, row_step);
  check({{kF16, 576, 3072}, {96, true}, OutputType::kF32, Activation::kNone, true, true}, row_step);
  check({{kF16, 40, 8}, {1, true}, OutputType::kF32, Activation::kNone, false, false}, row_step);
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main(int argc, char** argv) {
  using namespace pilotfish::cuda::test;
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  check_small(small ? 21 : 1);
  check_f16(small ? 21 : 1);
  if (!small) {
    check_formats_and_plans(2560, 2048, 1);
    check_formats_and_plans(4608, 1536, 1);
    check_formats_and_plans(4096, 11008, 1);
    check_formats_and_plans(11008, 4096, 1);
    check_formats_and_plans(32000, 4096, 3);
  }
  std::printf(failures ? "%d FAILURES\n" : "all linear tests passed\n", failures);
  return failures ? 1 : 0;
}
