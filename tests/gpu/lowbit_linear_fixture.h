// A low-bit linear with its inputs and scratch for the tests on a GPU: passes over any rows, and their double oracle.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gpu_test.h"

namespace pilotfish::cuda::test {

inline int failures = 0;

inline void expect(bool ok, const char* what, const LowbitShape& shape, const LowbitPlan& plan, int rows,
                   double value) {
  if (ok) return;
  ++failures;
  std::printf("FAILED %s: %s N=%d K=%d blocks=%d rows=%d value=%g\n", what, name_of(shape.format), shape.out_features,
              shape.in_features, plan.num_blocks, rows, value);
}

struct Case {
  LowbitShape shape;
  LowbitPlan plan;
  OutputType output_type = OutputType::kF16;
  Activation activation = Activation::kNone;
  bool with_bias = false;
  bool with_residual = false;
  bool with_norms = false;  // reads a copy for a norm and leaves one
};

inline constexpr float kEpsilon = 1e-5f, kUnscale = 0.5f;

/// Weights, inputs and scratch of one case, and passes over any of its rows.
class Fixture {
 public:
  Fixture(const Case& c, uint64_t seed)
      : case_(c),
        weight_(random_weight(c.shape, seed)),
        x_values_(random_halves(static_cast<size_t>(kMaxLinearRows) * c.shape.in_features, seed + 1)),
        bias_values_(random_floats(c.shape.out_features, seed + 2)),
        residual_values_(random_floats(static_cast<size_t>(kMaxLinearRows) * columns(), seed + 3)),
        square_values_(random_squares(c.shape.in_features, seed + 4)),
        next_weight_values_(random_floats(columns(), seed + 5)),
        weights_(repacked(weight_)),
        x_(copies(x_values_)),
        bias_(bias_values_),
        residual_f32_(residual_values_),
        residual_f16_(halves(residual_values_)),
        out_(static_cast<size_t>(kMaxLinearRows + 1) * columns() * element_bytes()),
        halves_(static_cast<size_t>(kMaxLinearRows) * columns()),
        squares_(square_values_),
        next_weight_(next_weight_values_),
        next_squares_(static_cast<size_t>(kMaxLinearRows) * num_square_parts(columns())),
        partials_(lowbit_partial_bytes(c.plan, kMaxLinearRows) / sizeof(float)) {
    CUDA_CHECK(read_device_limits(&limits_));
  }

  int columns() const {
    return case_.activation == Activation::kSwiGlu ? case_.shape.out_features / 2 : case_.shape.out_features;
  }
  size_t element_bytes() const { return case_.output_type == OutputType::kF16 ? 2 : 4; }

  /// Output bytes of a pass over rows first..first + count; checks that nothing beyond them was written.
  std::vector<uint8_t> run(int first, int count) {
    out_.poison();
    LowbitLinear linear = {};
    linear.shape = case_.shape;
    linear.plan = case_.plan;
    linear.weights = weights_.get();
    linear.x = x_.get() + static_cast<size_t>(first) * case_.shape.in_features;
    linear.x_copy_stride = kMaxLinearRows * case_.shape.in_features;
    linear.bias = case_.with_bias ? bias_.get() : nullptr;
    const size_t offset = static_cast<size_t>(first) * columns();
    if (case_.with_residual) {
      linear.residual = case_.output_type == OutputType::kF16 ? static_cast<const void*>(residual_f16_.get() + offset)
                                                              : static_cast<const void*>(residual_f32_.get() + offset);
    }
    linear.out = out_.get();
    linear.next.halves = case_.output_type == OutputType::kF32 ? halves_.get() : nullptr;
    if (case_.with_norms) {
      linear.input_norm = {squares_.get() + static_cast<size_t>(first) * num_square_parts(case_.shape.in_features),
                           kEpsilon, kUnscale};
      linear.next.weight = next_weight_.get();
      linear.next.squares = next_squares_.get();
      linear.next.copy_stride = copy_stride(count);
    }
    linear.output_type = case_.output_type;
    linear.activation = case_.activation;
    linear.num_rows = count;
    linear.turn = first % 3 == 0 ? Turn::kFirst : Turn::kSecond;
    linear.passes = first % 2 == 0 ? Passes::kIntoCache : Passes::kThroughCache;
    linear.partials = partials_.get();
    CUDA_CHECK(launch_lowbit_linear(linear, limits_, nullptr));
    CUDA_CHECK(cudaDeviceSynchronize());
    std::vector<uint8_t> bytes = out_.read();
    const size_t used = static_cast<size_t>(count) * columns() * element_bytes();
    for (size_t i = used; i < bytes.size(); ++i) {
      if (bytes[i] != 0xFF) {
        expect(false, "wrote past its rows", case_.shape, case_.plan, count, static_cast<double>(i));
        break;
      }
    }
    bytes.resize(used);
    check_halves(bytes, count);
    return bytes;
  }

  int copy_stride(int count) const {
    return case_.with_norms && leaves_copies(case_.shape, case_.plan, count) ? kMostCopiedRows * columns() : 0;
  }
  static std::vector<__half> copies(const std::vector<__half>& values) {
    std::vector<__half> all;
    for (int i = 0; i < kInputCopies; ++i) all.insert(all.end(), values.begin(), values.end());
    return all;
  }

  /// The f16 copy is the output, rounded; for a norm, with its weight, and beside it the squares of 32 columns.
  void check_halves(const std::vector<uint8_t>& bytes, int count) const {
    if (case_.output_type != OutputType::kF32) return;
    const std::vector<__half> copy = halves_.read();
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    for (size_t i = 0; i < static_cast<size_t>(count) * columns(); ++i) {
      const float weight = case_.with_norms ? next_weight_values_[i % columns()] : 1.0f;
      if (__half2float(copy[i]) == __half2float(__float2half(values[i] * weight))) continue;
      expect(false, "f16 copy", case_.shape, case_.plan, count, static_cast<double>(i));
      break;
    }
    if (case_.with_norms) check_squares(values, count);
    for (int i = 1; copy_stride(count) && i < kInputCopies; ++i) {
      const bool same =
          std::memcmp(copy.data(), copy.data() + i * copy_stride(count), sizeof(__half) * count * columns()) == 0;
      expect(same, "further copy", case_.shape, case_.plan, count, i);
    }
  }
  void check_squares(const float* values, int count) const {
    const std::vector<float> squares = next_squares_.read();
    for (int i = 0; i < count * ((columns() + 31) / 32); ++i) {
      const int row = i / ((columns() + 31) / 32), part = i % ((columns() + 31) / 32);
      double expected = 0;
      for (int column = part * 32; column < std::min(part * 32 + 32, columns()); ++column) {
        const double value = values[static_cast<size_t>(row) * columns() + column];
        expected += value * value;
      }
      const double actual = squares[static_cast<size_t>(row) * num_square_parts(columns()) + part];
      if (std::abs(actual - expected) <= 1e-5 * expected) continue;
      expect(false, "squares", case_.shape, case_.plan, count, actual - expected);
      break;
    }
  }

  double relative_error(int row, const std::vector<uint8_t>& bytes) const {
    const size_t k = case_.shape.in_features;
    std::vector<double> y = multiply_in_double(weight_, std::span(x_values_).subspan(row * k, k));
    if (case_.with_norms) {
      const float* squares = square_values_.data() + static_cast<size_t>(row) * num_square_parts(static_cast<int>(k));
      const double sum = std::accumulate(squares, squares + num_square_parts(static_cast<int>(k)), 0.0);
      for (double& value : y) value *= kUnscale / std::sqrt(sum / static_cast<double>(k) + kEpsilon);
    }
    if (case_.with_bias) {
      for (size_t i = 0; i < y.size(); ++i) y[i] += bias_values_[i];
    }
    double error = 0, norm = 0;
    for (int i = 0; i < columns(); ++i) {
      double expected = y[i];
      if (case_.activation == Activation::kSwiGlu) {
        const double gate = y[i / 16 * 32 + i % 16], up = y[i / 16 * 32 + 16 + i % 16];
        expected = gate / (1 + std::exp(-gate)) * up;
      }
      if (case_.with_residual) {
        const float residual = residual_values_[static_cast<size_t>(row) * columns() + i];
        expected += case_.output_type == OutputType::kF16 ? __half2float(__float2half(residual)) : residual;
      }
      const double actual = element(bytes, i);
      error += (actual - expected) * (actual - expected);
      norm += expected * expected;
    }
    return std::sqrt(error / norm);
  }

 private:
  /// Sums of squares of 32 columns each, and zeros behind them.
  static std::vector<float> random_squares(int columns, uint64_t seed) {
    const int parts = num_square_parts(columns);
    std::vector<float> squares = random_floats(static_cast<size_t>(kMaxLinearRows) * parts, seed);
    for (size_t i = 0; i < squares.size(); ++i) {
      squares[i] = static_cast<int>(i % parts) * 32 < columns ? 8 + squares[i] * squares[i] : 0;
    }
    return squares;
  }
  static std::vector<__half> halves(const std::vector<float>& values) {
    std::vector<__half> result;
    for (const float value : values) result.push_back(__float2half(value));
    return result;
  }
  double element(const std::vector<uint8_t>& bytes, int i) const {
    if (case_.output_type == OutputType::kF16) return __half2float(reinterpret_cast<const __half*>(bytes.data())[i]);
    return reinterpret_cast<const float*>(bytes.data())[i];
  }

  Case case_;
  DeviceLimits limits_;
  PackedWeight weight_;
  std::vector<__half> x_values_;
  std::vector<float> bias_values_;
  std::vector<float> residual_values_;
  std::vector<float> square_values_;
  std::vector<float> next_weight_values_;
  DeviceArray<uint8_t> weights_;
  DeviceArray<__half> x_;
  DeviceArray<float> bias_;
  DeviceArray<float> residual_f32_;
  DeviceArray<__half> residual_f16_;
  DeviceArray<uint8_t> out_;
  DeviceArray<__half> halves_;
  DeviceArray<float> squares_;
  DeviceArray<float> next_weight_;
  DeviceArray<float> next_squares_;
  DeviceArray<float> partials_;
};

}  // namespace pilotfish::cuda::test
