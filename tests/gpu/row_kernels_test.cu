// RMSNorm and embedding against double oracles on the host.
#include <cmath>

#include "gpu_test.h"

namespace pilotfish::cuda::test {
namespace {

int failures = 0;

void expect(bool ok, const char* what, int columns, double value) {
  std::printf("%-28s columns %-6d %.2e%s\n", what, columns, value, ok ? "" : "  FAILED");
  failures += !ok;
}

double f16(double value) { return __half2float(__float2half(static_cast<float>(value))); }

/// Rows alone have the bits of rows together; poisoned output is written in full.
void check_norm(int num_columns, bool with_weight) {
  constexpr int kRows = 67;
  const float epsilon = 1e-5f;
  std::vector<float> x = random_floats(static_cast<size_t>(kRows) * num_columns, 5);
  for (int column = 0; column < num_columns; ++column) x[num_columns + column] *= 1e5f;  // needs the norm, or saturates
  const std::vector<float> weight = random_floats(num_columns, 6);
  const DeviceArray<float> x_device(x), weight_device(weight);
  const DeviceArray<__half> out(x.size()), single(num_columns);
  const float* norm = with_weight ? weight_device.get() : nullptr;
  CUDA_CHECK(launch_rms_norm(x_device.get(), norm, epsilon, kRows, num_columns, out.get(), nullptr));
  CUDA_CHECK(launch_rms_norm(x_device.get() + 66 * static_cast<size_t>(num_columns), norm, epsilon, 1, num_columns,
                             single.get(), nullptr));
  CUDA_CHECK(cudaDeviceSynchronize());
  const std::vector<__half> y = out.read(), last = single.read();
  double error = 0, size = 0;
  bool same = true;
  for (int row = 0; row < kRows; ++row) {
    const float* values = x.data() + static_cast<size_t>(row) * num_columns;
    double squares = 0;
    for (int i = 0; i < num_columns; ++i) squares += static_cast<double>(values[i]) * values[i];
    const double inverse = with_weight ? 1 / std::sqrt(squares / num_columns + epsilon) : 1;
    for (int i = 0; i < num_columns; ++i) {
      double expected = values[i] * inverse * (with_weight ? weight[i] : 1);
      if (std::fabs(expected) > 65504) expected = std::copysign(65504.0, expected);
      const double difference = __half2float(y[static_cast<size_t>(row) * num_columns + i]) - f16(expected);
      if (row == 1 && !with_weight) continue;  // saturated: large numbers drown the rest
      error += difference * difference;
      size += expected * expected;
    }
  }
  for (int i = 0; i < num_columns; ++i) {
    same = same && __half2float(last[i]) == __half2float(y[66 * static_cast<size_t>(num_columns) + i]);
  }
  const double relative = std::sqrt(error / size);
  expect(relative < 1e-4 && same && !std::isinf(__half2float(y[num_columns])), with_weight ? "rms_norm" : "to_halves",
         num_columns, relative);
}

void check_embedding(WeightFormat format, int num_rows, int num_columns) {
  const PackedWeight weight = random_weight({format, num_columns, num_rows}, 9);
  const DeviceArray<uint8_t> weights = repacked(weight);
  const std::vector<int32_t> ids = {0, num_rows - 1, 17, 16, 31, 32, num_rows / 2, 1, -1, num_rows};
  const DeviceArray<int32_t> ids_device(ids);
  const DeviceArray<float> out(ids.size() * num_columns);
  const float scale = 1.5f;
  CUDA_CHECK(launch_embedding(weight.shape, weights.get(), ids_device.get(), static_cast<int>(ids.size()), scale,
                              out.get(), nullptr));
  CUDA_CHECK(cudaDeviceSynchronize());
  const std::vector<float> y = out.read();
  double worst = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    for (int column = 0; column < num_columns; ++column) {
      const float found = y[i * num_columns + column];
      if (ids[i] < 0 || ids[i] >= num_rows) {
        if (!std::isnan(found)) worst = INFINITY;
        continue;
      }
      const auto product = static_cast<float>(weight.scale(ids[i], column) * weight.integer(ids[i], column));
      const float expected = (product + static_cast<float>(weight.offset(ids[i], column))) * scale;
      const double difference = std::fabs(found - expected);
      if (!(difference <= worst)) worst = difference;
    }
  }
  expect(worst == 0, name_of(format), num_columns, worst);
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main() {
  using namespace pilotfish::cuda::test;
  for (const int columns : {64, 576, 4096, 11008}) {
    check_norm(columns, true);
    check_norm(columns, false);
  }
  for (const auto format : kFormats) {
    check_embedding(format, 300, 64);
    check_embedding(format, 1000, 576);
    check_embedding(format, 8192, 200);
  }
  std::printf(failures ? "%d FAILURES\n" : "all row kernel tests passed\n", failures);
  return failures ? 1 : 0;
}
