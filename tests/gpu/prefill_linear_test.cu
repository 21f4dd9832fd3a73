// The linear of many rows: every output, copy and sum of squares has the bits that passes of at most 64 rows give,
// which lowbit_linear_test compares with an oracle. `--small` runs the shapes that compute-sanitizer can afford.
#include <algorithm>
#include <cstring>

#include "gpu_test.h"

namespace pilotfish::cuda::test {
namespace {

int failures = 0;

struct Case {
  LowbitShape shape;
  LowbitPlan plan;
  OutputType output_type = OutputType::kF32;
  Activation activation = Activation::kNone;
  bool with_bias = true;
  bool with_residual = true;
  bool with_norms = false;  // of the input, and of the linear that comes next
};

/// What a linear writes, each array poisoned before.
struct Outputs {
  DeviceArray<uint8_t> out;
  DeviceArray<__half> halves;
  DeviceArray<float> squares;

  Outputs(size_t out_bytes, size_t num_halves, size_t num_squares)
      : out(out_bytes), halves(num_halves), squares(num_squares) {}
  std::vector<std::vector<uint8_t>> read() const {
    std::vector<std::vector<uint8_t>> all{out.read()};
    const std::vector<__half> copy = halves.read();
    const std::vector<float> sums = squares.read();
    const auto *copy_bytes = reinterpret_cast<const uint8_t*>(copy.data()),
               *sum_bytes = reinterpret_cast<const uint8_t*>(sums.data());
    all.emplace_back(copy_bytes, copy_bytes + copy.size() * sizeof(__half));
    all.emplace_back(sum_bytes, sum_bytes + sums.size() * sizeof(float));
    return all;
  }
};

class Fixture {
 public:
  Fixture(const Case& c, int most_rows, uint64_t seed)
      : case_(c),
        most_rows_(most_rows),
        weights_(repacked(random_weight(c.shape, seed))),
        x_(random_halves(size_t(most_rows) * c.shape.in_features, seed + 1)),
        bias_(random_floats(c.shape.out_features, seed + 2)),
        residual_(random_floats(size_t(most_rows) * columns(), seed + 3)),
        norm_weight_(random_floats(columns(), seed + 4)),
        input_squares_(positive(random_floats(size_t(most_rows) * num_square_parts(c.shape.in_features), seed + 5))),
        partials_(lowbit_partial_bytes(c.plan, kMaxLinearRows) / sizeof(float)),
        scratch_(prefill_scratch_bytes(c.shape, most_rows)) {
    CUDA_CHECK(read_device_limits(&limits_));
  }

  /// In passes of at most 64 rows.
  std::vector<std::vector<uint8_t>> in_small_passes(int count) const {
    Outputs outputs = new_outputs();
    for (int first = 0; first < count; first += kMaxLinearRows) {
      const LowbitLinear linear = rows(outputs, first, std::min(kMaxLinearRows, count - first));
      CUDA_CHECK(launch_lowbit_linear(linear, limits_, nullptr));
      CUDA_CHECK(cudaDeviceSynchronize());
    }
    return outputs.read();
  }
  std::vector<std::vector<uint8_t>> at_once(int count) const {
    Outputs outputs = new_outputs();
    scratch_.poison();
    CUDA_CHECK(launch_prefill_linear(rows(outputs, 0, count), scratch_.get(), limits_, nullptr));
    CUDA_CHECK(cudaDeviceSynchronize());
    return outputs.read();
  }

 private:
  int columns() const {
    return case_.activation == Activation::kSwiGlu ? case_.shape.out_features / 2 : case_.shape.out_features;
  }
  size_t element_bytes() const { return case_.output_type == OutputType::kF16 ? 2 : 4; }
  static std::vector<float> positive(std::vector<float> values) {
    for (float& value : values) value = value * value;
    return values;
  }
  Outputs new_outputs() const {
    return {size_t(most_rows_) * columns() * element_bytes(), size_t(most_rows_) * columns(),
            size_t(most_rows_) * num_square_parts(columns())};
  }

  LowbitLinear rows(const Outputs& outputs, int first, int count) const {
    LowbitLinear linear = {};
    const size_t out = size_t(first) * columns();
    linear.shape = case_.shape;
    linear.plan = case_.plan;
    linear.weights = weights_.get();
    linear.x = x_.get() + size_t(first) * case_.shape.in_features;
    linear.bias = case_.with_bias ? bias_.get() : nullptr;
    // As f16 some of these are large or denormal numbers; none is a NaN that hides a difference.
    if (case_.with_residual)
      linear.residual = reinterpret_cast<const uint8_t*>(residual_.get()) + out * element_bytes();
    linear.out = outputs.out.get() + out * element_bytes();
    linear.output_type = case_.output_type;
    linear.activation = case_.activation;
    linear.num_rows = count;
    if (case_.output_type == OutputType::kF32) linear.next.halves = outputs.halves.get() + out;
    if (case_.with_norms) {
      const int parts = num_square_parts(case_.shape.in_features);
      linear.input_norm = {input_squares_.get() + size_t(first) * parts, 1e-5f, 0.5f};
      if (case_.activation == Activation::kNone && case_.output_type == OutputType::kF32) {
        linear.next.weight = norm_weight_.get();
        linear.next.squares = outputs.squares.get() + size_t(first) * num_square_parts(columns());
      }
    }
    linear.partials = partials_.get();
    return linear;
  }

  Case case_;
  int most_rows_;
  DeviceLimits limits_;
  DeviceArray<uint8_t> weights_;
  DeviceArray<__half> x_;
  DeviceArray<float> bias_, residual_, norm_weight_, input_squares_, partials_;
  DeviceArray<uint8_t> scratch_;
};

void check(const Case& c, const std::vector<int>& row_counts) {
  static uint64_t seed = std::random_device{}();
  const Fixture fixture(c, *std::max_element(row_counts.begin(), row_counts.end()) + 1, seed += 10);
  bool same = true;
  for (const int rows : row_counts) {
    const auto expected = fixture.in_small_passes(rows), found = fixture.at_once(rows);
    constexpr const char* kNames[] = {"output", "f16 copy", "squares"};
    for (int i = 0; i < 3; ++i) {
      const auto [at, other] = std::mismatch(expected[i].begin(), expected[i].end(), found[i].begin());
      if (at == expected[i].end()) continue;
      same = false;
      std::printf("FAILED %s differs at byte %zu of %d rows: %02x, not %02x\n", kNames[i],
                  size_t(at - expected[i].begin()), rows, *other, *at);
    }
  }
  failures += !same;
  std::printf("%s N=%-6d K=%-6d %s %-3d %s%s%s%s%s: %zu row counts %s\n", name_of(c.shape.format), c.shape.out_features,
              c.shape.in_features, c.plan.is_resident ? "resident" : "blocks", c.plan.num_blocks,
              c.output_type == OutputType::kF16 ? "f16" : "f32", c.with_bias ? " bias" : "",
              c.activation == Activation::kSwiGlu ? " swiglu" : "", c.with_residual ? " residual" : "",
              c.with_norms ? " norms" : "", row_counts.size(), same ? "equal" : "DIFFER");
  std::fflush(stdout);
}

void check_small(const std::vector<int>& row_counts) {
  for (const WeightFormat format : kAllFormats) {
    for (const int num_blocks : {1, 5, 24}) {
      check({{format, 1536, 576}, {num_blocks}, OutputType::kF32, Activation::kSwiGlu, true, true, true}, row_counts);
    }
    check({{format, 1536, 576}, {18, true}, OutputType::kF32, Activation::kNone, true, true, true}, row_counts);
    check({{format, 576, 200}, {3}, OutputType::kF16, Activation::kNone, true, true}, row_counts);
    check({{format, 576, 3072}, {format == WeightFormat::kInt8 ? 8 : 5}}, row_counts);
    check({{format, 40, 8}, {1}, OutputType::kF32, Activation::kNone, false, false}, row_counts);
  }
}

void check_planned(int out_features, int in_features) {
  DeviceLimits limits;
  CUDA_CHECK(read_device_limits(&limits));
  for (const WeightFormat format : kAllFormats) {
    const LowbitShape shape{format, in_features, out_features};
    check({shape, plan_lowbit_linear(shape, limits), OutputType::kF32, Activation::kNone, true, true, true}, {65, 200});
  }
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main(int argc, char** argv) {
  using namespace pilotfish::cuda::test;
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  check_small(small ? std::vector<int>{1, 70} : std::vector<int>{1, 7, 64, 65, 100, 128, 129, 250});
  if (!small) {
    check_planned(2560, 2048);
    check_planned(4608, 1536);
    check_planned(4096, 11008);
    check_planned(22016, 4096);
    check_planned(32000, 4096);
  }
  std::printf(failures ? "%d FAILURES\n" : "all prefill tests passed\n", failures);
  return failures ? 1 : 0;
}
