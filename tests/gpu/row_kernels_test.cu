// RMSNorm, embedding, and rows that are picked, joined and normed, against
// double oracles on the host.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gpu_test.h"

namespace pilotfish::cuda::test {
namespace {

int failures = 0;

void expect(bool ok, const char* what, int columns, double value) {
  std::printf("%-28s columns %-6d %.2e%s\n", what, columns, value, ok ? "" : "  FAILED");
  failures += !ok;
}

double f16(double value) { return __half2float(__float2half(static_cast<float>(value))); }

/// Rows alone have the bits of rows together; poisoned output is written in
/// full.
void check_norm(int num_columns, bool with_weight) {
  constexpr int kRows = 67;
  const float epsilon = 1e-5f;
  std::vector<float> x = random_floats(static_cast<size_t>(kRows) * num_columns, 5);
  for (int column = 0; column < num_columns; ++column) x[num_columns + column] *= 1e5f;  // needs the norm, or saturates
  const std::vector<float> weight = random_floats(num_columns, 6);
  const DeviceArray<float> x_device(x), weight_device(weight);
  const int width = padded_columns(num_columns);
  const DeviceArray<__half> out(static_cast<size_t>(kRows) * width), single(width);
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
      const double difference = __half2float(y[static_cast<size_t>(row) * width + i]) - f16(expected);
      if (row == 1 && !with_weight) continue;  // saturated: large numbers drown the rest
      error += difference * difference;
      size += expected * expected;
    }
  }
  for (int i = 0; i < width; ++i) {
    same = same && __half2float(last[i]) == __half2float(y[66 * static_cast<size_t>(width) + i]);
    same = same && (i < num_columns || __half2float(last[i]) == 0);
  }
  const double relative = std::sqrt(error / size);
  expect(relative < 1e-4 && same && !std::isinf(__half2float(y[width])), with_weight ? "rms_norm" : "to_halves",
         num_columns, relative);
}

/// A row of no numbers stays one, and changes no other row.
void check_not_numbers(int num_columns, bool with_weight) {
  constexpr int kRows = 3, kBroken = 1;
  std::vector<float> x = random_floats(static_cast<size_t>(kRows) * num_columns, 7);
  const DeviceArray<float> whole(x), weight(random_floats(num_columns, 8));
  std::fill_n(x.begin() + kBroken * num_columns, num_columns, std::numeric_limits<float>::quiet_NaN());
  const DeviceArray<float> broken(x);
  const int width = padded_columns(num_columns);
  const DeviceArray<__half> expected(static_cast<size_t>(kRows) * width), out(expected.size());
  const float* norm = with_weight ? weight.get() : nullptr;
  CUDA_CHECK(launch_rms_norm(whole.get(), norm, 1e-5f, kRows, num_columns, expected.get(), nullptr));
  CUDA_CHECK(launch_rms_norm(broken.get(), norm, 1e-5f, kRows, num_columns, out.get(), nullptr));
  CUDA_CHECK(cudaDeviceSynchronize());
  const std::vector<__half> before = expected.read(), after = out.read();
  bool right = true;
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < num_columns; ++i) {
      const size_t at = static_cast<size_t>(row) * width + i;
      const float found = __half2float(after[at]);
      right = right && (row == kBroken ? std::isnan(found) : found == __half2float(before[at]));
    }
  }
  expect(right, with_weight ? "rms_norm of no numbers" : "to_halves of no numbers", num_columns, 0);
}

void check_embedding(WeightFormat format, int num_rows, int num_columns) {
  const PackedWeight weight = random_weight({format, num_columns, num_rows}, 9);
  const DeviceArray<uint8_t> weights = repacked(weight);
  const std::vector<int32_t> ids = {0, num_rows - 1, 17, 16, 31, 32, num_rows / 2, 1, -1, num_rows};
  const DeviceArray<int32_t> ids_device(ids);
  const DeviceArray<float> out(ids.size() * num_columns);
  const float scale = 1.5f;
  CUDA_CHECK(launch_embedding(weight.shape, weights.get(), ids_device.get(), static_cast<int>(ids.size()), scale,
                              out.get(), {}, nullptr));
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

/// What a norm's linear reads, written by the kernel before it: f16 copy and
/// sums of squares.
struct CopyBuffers {
  DeviceArray<__half> halves;
  DeviceArray<float> squares;

  CopyBuffers(int rows, int columns)
      : halves(size_t(rows) * columns), squares(size_t(rows) * num_square_parts(columns)) {
    squares.clear();
  }
  NextInput next(const float* weight) const { return {halves.get(), weight, squares.get()}; }
};

/// Embedding and three linears as in a layer, norms folded into copies and sums
/// or made by kernels of their own.
class Layer {
 public:
  enum class Norms { kFolded, kApart };

  Layer(WeightFormat format, int inner, int hidden, int out_features)
      : inner_(inner),
        hidden_(hidden),
        out_features_(out_features),
        weights_{random_weight({format, hidden, 64}, 1), random_weight({format, hidden, inner}, 2),
                 random_weight({format, inner, hidden}, 3), random_weight({format, hidden, out_features}, 4)},
        norm_(random_floats(hidden, 5)) {
    CUDA_CHECK(read_device_limits(&limits_));
    for (const PackedWeight& weight : weights_) {
      device_weights_.push_back(repacked(weight));
      const LowbitPlan plan = plan_lowbit_linear(weight.shape, limits_);
      partial_floats_ = std::max(partial_floats_, lowbit_partial_bytes(plan, kMaxLinearRows) / sizeof(float));
    }
  }

  std::vector<float> run(int first_id, int rows, Norms norms) const {
    const bool folded = norms == Norms::kFolded;
    std::vector<int32_t> ids(rows);
    for (int i = 0; i < rows; ++i) ids[i] = first_id + i;
    const DeviceArray<int32_t> ids_device(ids);
    const CopyBuffers first(rows, hidden_), second(rows, hidden_);
    const DeviceArray<__half> middle(size_t(rows) * inner_), normed(size_t(rows) * hidden_);
    const DeviceArray<float> x(size_t(rows) * hidden_), y(size_t(rows) * hidden_), scratch(size_t(rows) * inner_),
        out(size_t(rows) * out_features_), partials(partial_floats_);
    const NextInput none = {};
    CUDA_CHECK(launch_embedding(weights_[0].shape, device_weights_[0].get(), ids_device.get(), rows, 1, x.get(),
                                folded ? first.next(norm_.get()) : none, nullptr));
    if (!folded) make_norm(x, rows, normed);
    LowbitLinear linear = prepared(1, rows, folded ? &first : nullptr, normed, scratch, partials);
    linear.next.halves = middle.get();
    CUDA_CHECK(launch_lowbit_linear(linear, limits_, nullptr));
    linear = prepared(2, rows, nullptr, middle, y, partials);
    linear.residual = x.get();
    if (folded) linear.next = second.next(norm_.get());
    CUDA_CHECK(launch_lowbit_linear(linear, limits_, nullptr));
    if (!folded) make_norm(y, rows, normed);
    linear = prepared(3, rows, folded ? &second : nullptr, normed, out, partials);
    CUDA_CHECK(launch_lowbit_linear(linear, limits_, nullptr));
    CUDA_CHECK(cudaDeviceSynchronize());
    return out.read();
  }

 private:
  static constexpr float kEpsilon = 1e-5f;

  void make_norm(const DeviceArray<float>& x, int rows, const DeviceArray<__half>& normed) const {
    CUDA_CHECK(launch_rms_norm(x.get(), norm_.get(), kEpsilon, rows, hidden_, normed.get(), nullptr));
  }
  LowbitLinear prepared(int index, int rows, const CopyBuffers* copy, const DeviceArray<__half>& in,
                        const DeviceArray<float>& out, const DeviceArray<float>& partials) const {
    LowbitLinear linear = {};
    linear.shape = weights_[index].shape;
    linear.plan = plan_lowbit_linear(linear.shape, limits_);
    linear.weights = device_weights_[index].get();
    linear.x = copy ? copy->halves.get() : in.get();
    if (copy) linear.input_norm = {copy->squares.get(), kEpsilon, 1};
    linear.out = out.get();
    linear.output_type = OutputType::kF32;
    linear.num_rows = rows;
    linear.partials = partials.get();
    return linear;
  }

  int inner_, hidden_, out_features_;
  std::vector<PackedWeight> weights_;
  std::vector<DeviceArray<uint8_t>> device_weights_;
  DeviceArray<float> norm_;
  DeviceLimits limits_;
  size_t partial_floats_ = 1;
};

void check_folded_norms(WeightFormat format, int inner, int hidden, int out_features) {
  constexpr int kRows = 37;
  const Layer layer(format, inner, hidden, out_features);
  const std::vector<float> folded = layer.run(0, kRows, Layer::Norms::kFolded);
  const std::vector<float> apart = layer.run(0, kRows, Layer::Norms::kApart);
  double error = 0, size = 0;
  for (size_t i = 0; i < folded.size(); ++i) {
    error += (double{folded[i]} - apart[i]) * (double{folded[i]} - apart[i]);
    size += double{apart[i]} * apart[i];
  }
  bool same = true;
  for (const int row : {0, 9, kRows - 1}) {
    const std::vector<float> alone = layer.run(row, 1, Layer::Norms::kFolded);
    same = same && std::equal(alone.begin(), alone.end(), folded.begin() + size_t(row) * out_features);
  }
  const double relative = std::sqrt(error / size);
  expect(relative < 1e-3 && same, same ? "folded norms" : "folded norms: row bits", hidden, relative);
}

double activated(RowActivation activation, double x) {
  if (activation == RowActivation::kSilu) return x / (1 + std::exp(-x));
  return activation == RowActivation::kGelu ? 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))) : x;
}

/// A norm's result for every column of a row, in double.
std::vector<double> expected_norm(const NormSettings& settings, const float* x, const float* weight, const float* bias,
                                  const float* residual, int num_columns) {
  double mean = 0, squares = 0;
  for (int i = 0; i < num_columns; ++i) mean += x[i];
  mean = settings.norm == NormKind::kLayer ? mean / num_columns : 0;
  for (int i = 0; i < num_columns; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double factor =
      settings.norm == NormKind::kNone ? 1 : 1 / std::sqrt(squares / num_columns + double{settings.epsilon});
  std::vector<double> result(num_columns);
  for (int i = 0; i < num_columns; ++i) {
    const double value = (x[i] - mean) * factor * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
    result[i] = activated(settings.activation, value) + (residual ? residual[i] : 0);
  }
  return result;
}

enum class Given { kNothing, kVectors, kAll };

/// Rows of any number of columns; alone they have the bits of rows together,
/// and the copy is that of the result.
void check_norm_activation(NormKind norm, RowActivation activation, Given given, int num_columns) {
  constexpr int kRows = 19, kLast = kRows - 1;
  const size_t count = size_t(kRows) * num_columns, last = size_t(kLast) * num_columns;
  std::vector<float> x = random_floats(count, 11);
  for (float& value : x) value = 3 * value + 0.5f;
  const std::vector<float> weight = random_floats(num_columns, 12), bias = random_floats(num_columns, 13),
                           residual = random_floats(count, 14);
  const DeviceArray<float> x_device(x), weight_device(weight), bias_device(bias), residual_device(residual), out(count),
      single(num_columns);
  const DeviceArray<__half> halves(count);
  const bool has_vectors = given != Given::kNothing, has_residual = given == Given::kAll;
  NormActivation together = {.settings = {norm, activation, 1e-5f},
                             .num_rows = kRows,
                             .num_columns = num_columns,
                             .x = x_device.get(),
                             .weight = has_vectors ? weight_device.get() : nullptr,
                             .bias = has_vectors ? bias_device.get() : nullptr,
                             .residual = has_residual ? residual_device.get() : nullptr,
                             .out = out.get(),
                             .halves_out = halves.get()};
  CUDA_CHECK(launch_norm_activation(together, nullptr));
  NormActivation alone = together;
  alone.num_rows = 1;
  alone.x += last;
  if (has_residual) alone.residual += last;
  alone.out = single.get();
  alone.halves_out = nullptr;
  CUDA_CHECK(launch_norm_activation(alone, nullptr));
  CUDA_CHECK(cudaDeviceSynchronize());
  const std::vector<float> y = out.read(), one = single.read();
  const std::vector<__half> copy = halves.read();
  double worst = 0, most = 1;
  bool same = std::equal(one.begin(), one.end(), y.begin() + static_cast<std::ptrdiff_t>(last));
  for (int row = 0; row < kRows; ++row) {
    const size_t first = size_t(row) * num_columns;
    const std::vector<double> expected = expected_norm(
        together.settings, x.data() + first, has_vectors ? weight.data() : nullptr, has_vectors ? bias.data() : nullptr,
        has_residual ? residual.data() + first : nullptr, num_columns);
    for (int i = 0; i < num_columns; ++i) {
      const double difference = std::fabs(y[first + i] - expected[i]);
      if (!(difference <= worst)) worst = difference;
      most = std::max(most, std::fabs(expected[i]));
      same = same && __half2float(copy[first + i]) == f16(y[first + i]);
    }
  }
  expect(worst < 4e-6 * most && same, same ? "norm_activation" : "norm_activation: bits", num_columns, worst / most);
}

/// The first rows, others out of order and twice, and NaN for those that are
/// not there.
void check_pick_rows(int num_columns) {
  constexpr int kSourceRows = 300;
  const std::vector<float> source = random_floats(size_t(kSourceRows) * num_columns, 15);
  std::vector<int32_t> rows = {0, 299, 7, 7, -1, 300, 2147483647};
  for (int i = 0; i < 290; ++i) rows.push_back(i);  // more than a pass of few rows has
  const DeviceArray<float> source_device(source), out(rows.size() * num_columns);
  const DeviceArray<int32_t> rows_device(rows);
  CUDA_CHECK(launch_pick_rows(
      {source_device.get(), rows_device.get(), kSourceRows, static_cast<int>(rows.size()), num_columns, out.get()},
      nullptr));
  CUDA_CHECK(cudaDeviceSynchronize());
  const std::vector<float> y = out.read();
  bool right = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int column = 0; column < num_columns; ++column) {
      const float found = y[i * num_columns + column];
      const bool exists = rows[i] >= 0 && rows[i] < kSourceRows;
      right = right && (exists ? found == source[size_t(rows[i]) * num_columns + column] : std::isnan(found));
    }
  }
  expect(right, "pick_rows", num_columns, 0);
}

void check_join_columns(const std::vector<int>& widths) {
  constexpr int kRows = 70;
  std::vector<std::vector<float>> parts;
  std::vector<DeviceArray<float>> device_parts;
  JoinColumns join = {};
  for (const int width : widths) {
    parts.push_back(random_floats(size_t(kRows) * width, 20 + join.num_parts));
    device_parts.emplace_back(parts.back());
    join.widths[join.num_parts++] = width;
    join.num_columns += width;
  }
  for (int i = 0; i < join.num_parts; ++i) join.parts[i] = device_parts[i].get();
  const DeviceArray<float> out(size_t(kRows) * join.num_columns);
  const DeviceArray<__half> halves(out.size());
  join.num_rows = kRows;
  join.out = out.get();
  join.halves_out = halves.get();
  CUDA_CHECK(launch_join_columns(join, nullptr));
  CUDA_CHECK(cudaDeviceSynchronize());
  const std::vector<float> y = out.read();
  const std::vector<__half> copy = halves.read();
  bool right = true;
  for (int row = 0; row < kRows; ++row) {
    size_t at = size_t(row) * join.num_columns;
    for (size_t part = 0; part < parts.size(); ++part) {
      for (int column = 0; column < widths[part]; ++column, ++at) {
        right = right && y[at] == parts[part][size_t(row) * widths[part] + column];
        right = right && __half2float(copy[at]) == f16(y[at]);
      }
    }
  }
  expect(right, "join_columns", join.num_columns, 0);
}

void check_row_operators() {
  for (const int columns : {1, 31, 64, 576, 4096, 4097, 11008}) {
    for (const NormKind norm : {NormKind::kNone, NormKind::kRms, NormKind::kLayer}) {
      for (const RowActivation activation : {RowActivation::kNone, RowActivation::kSilu, RowActivation::kGelu}) {
        check_norm_activation(norm, activation, Given::kAll, columns);
      }
      check_norm_activation(norm, RowActivation::kNone, Given::kNothing, columns);
      check_norm_activation(norm, RowActivation::kNone, Given::kVectors, columns);
    }
    check_pick_rows(columns);
  }
  check_join_columns({64});
  check_join_columns({576, 576});
  check_join_columns({1, 255, 4096});
  check_join_columns({3, 5, 7, 11, 13, 17, 19, 23});
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main() {
  using namespace pilotfish::cuda::test;
  for (const auto format : kFormats) {
    check_folded_norms(format, 1536, 576, 1000);
    check_folded_norms(format, 11008, 4096, 4096);
  }
  for (const int columns : {4, 64, 90, 576, 4096, 11008}) {
    check_norm(columns, true);
    check_norm(columns, false);
    check_not_numbers(columns, true);
    check_not_numbers(columns, false);
  }
  for (const auto format : kFormats) {
    check_embedding(format, 300, 64);
    check_embedding(format, 1000, 576);
    check_embedding(format, 8192, 200);
  }
  check_row_operators();
  std::printf(failures ? "%d FAILURES\n" : "all row kernel tests passed\n", failures);
  return failures ? 1 : 0;
}
