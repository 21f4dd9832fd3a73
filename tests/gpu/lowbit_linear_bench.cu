// Milliseconds of the chain of 24 low-bit linears 4096 <-> 11008 in a captured graph: a table, then one JSON line.
// Usage: lowbit_linear_bench [int4 | int4_asym | int8]
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "gpu_test.h"
#include "graph_timer.h"

namespace pilotfish::cuda::test {
namespace {

constexpr int kWarmReplays = 10, kReplays = 60;
constexpr double kReadTerabytesPerSecond = 3.09;  // a plain reading kernel on an H100 80GB HBM3

/// Linears of the given shapes, each reading what the one before wrote. Two weights are drawn; the copies of them in
/// the chain lie apart, so that no pass finds them in the cache.
class Chain {
 public:
  Chain(const std::vector<LowbitShape>& shapes, const DeviceLimits& limits)
      : shapes_(shapes),
        limits_(limits),
        buffers_{DeviceArray<__half>(random_halves(widest(shapes) * kMaxLinearRows, 3)),
                 DeviceArray<__half>(widest(shapes) * kMaxLinearRows)},
        partials_(widest_partials(shapes, limits)) {
    const PackedWeight originals[2] = {random_weight(shapes[0], 7), random_weight(shapes[1], 8)};
    for (size_t i = 0; i < shapes.size(); ++i) weights_.push_back(repacked(originals[i % 2]));
  }

  size_t weight_bytes() const {
    size_t bytes = 0;
    for (const DeviceArray<uint8_t>& weight : weights_) bytes += weight.bytes();
    return bytes;
  }
  void fill_input(const std::vector<__half>& values) const {
    CUDA_CHECK(cudaMemcpy(buffers_[0].get(), values.data(), values.size() * 2, cudaMemcpyHostToDevice));
  }
  std::vector<__half> output() const { return buffers_[shapes_.size() % 2].read(); }

  template <class After>
  void enqueue(int num_rows, cudaStream_t stream, const After& after) const {
    for (size_t i = 0; i < shapes_.size(); ++i) {
      LowbitLinear linear = {};
      linear.shape = shapes_[i];
      linear.plan = plan_lowbit_linear(shapes_[i], limits_);
      linear.weights = weights_[i].get();
      linear.x = buffers_[i % 2].get();
      linear.out = buffers_[(i + 1) % 2].get();
      linear.num_rows = num_rows;
      linear.passes = Passes::kThroughCache;
      linear.turn = i % 2 == 0 ? Turn::kFirst : Turn::kSecond;
      linear.partials = partials_.get();
      CUDA_CHECK(launch_lowbit_linear(linear, limits_, stream));
      after();
    }
  }
  double time(int num_rows) const {
    return time_graph([&](cudaStream_t stream) { enqueue(num_rows, stream, [] {}); }, kWarmReplays, kReplays);
  }

 private:
  static size_t widest(const std::vector<LowbitShape>& shapes) {
    size_t width = 0;
    for (const LowbitShape& shape : shapes)
      width = std::max<size_t>(width, std::max(shape.in_features, shape.out_features));
    return width;
  }
  static size_t widest_partials(const std::vector<LowbitShape>& shapes, const DeviceLimits& limits) {
    size_t bytes = 0;
    for (const LowbitShape& shape : shapes) {
      bytes = std::max(bytes, lowbit_partial_bytes(plan_lowbit_linear(shape, limits), kMaxLinearRows));
    }
    return bytes / sizeof(float);
  }

  std::vector<LowbitShape> shapes_;
  DeviceLimits limits_;
  std::array<DeviceArray<__half>, 2> buffers_;
  DeviceArray<float> partials_;
  std::vector<DeviceArray<uint8_t>> weights_;
};

std::vector<LowbitShape> chain_shapes(WeightFormat format) {
  std::vector<LowbitShape> shapes;
  for (int i = 0; i < 24; ++i)
    shapes.push_back(i % 2 ? LowbitShape{format, 11008, 4096} : LowbitShape{format, 4096, 11008});
  return shapes;
}

/// The graph's overlapped kernels give the bits of kernels that each wait for the one before; every replay the same.
bool overlaps_without_races(const Chain& chain, int num_rows) {
  const std::vector<__half> input = random_halves(11008 * kMaxLinearRows, num_rows);
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreate(&stream));
  const size_t used = static_cast<size_t>(num_rows) * 4096 * 2;
  chain.fill_input(input);
  chain.enqueue(num_rows, stream, [&] { CUDA_CHECK(cudaStreamSynchronize(stream)); });
  const std::vector<__half> expected = chain.output();
  bool same = true;
  for (int repeat = 0; repeat < 40; ++repeat) {
    chain.fill_input(input);
    chain.enqueue(num_rows, stream, [] {});
    CUDA_CHECK(cudaStreamSynchronize(stream));
    same = same && std::memcmp(chain.output().data(), expected.data(), used) == 0;
  }
  CUDA_CHECK(cudaStreamDestroy(stream));
  return same;
}

constexpr int kRowCounts[] = {1, 2, 4, 8, 16, 24, 32, 48, 64};

/// Prints the table of one format and returns its JSON object.
std::string bench_format(WeightFormat format, const DeviceLimits& limits) {
  const char* name = name_of(format);
  const Chain chain(chain_shapes(format), limits);
  const double floor_ms = chain.weight_bytes() / (kReadTerabytesPerSecond * 1e9);
  std::printf("%s chain: %.1f MB, floor %.3f ms\n%5s %9s %9s %9s %7s  %s\n", name, chain.weight_bytes() * 1e-6,
              floor_ms, "rows", "ms", "again", "/ rows 1", "TB/s", "overlapped bits");
  std::string json = std::string("\"") + name + "\": {";
  double single = 0;
  for (const int rows : kRowCounts) {
    const double ms = chain.time(rows), again = chain.time(rows);
    if (rows == 1) single = ms;
    const bool same = overlaps_without_races(chain, rows);
    std::printf("%5d %9.4f %9.4f %9.2f %7.2f  %s\n", rows, ms, again, ms / single, chain.weight_bytes() / ms * 1e-9,
                same ? "equal" : "DIFFER");
    std::fflush(stdout);
    char entry[64];
    std::snprintf(entry, sizeof(entry), "%s\"%d\": %.4f", rows == 1 ? "" : ", ", rows, ms);
    json += entry;
    if (!same) std::exit(1);
  }
  return json + "}";
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main(int argc, char** argv) {
  using namespace pilotfish::cuda;
  using namespace pilotfish::cuda::test;
  cudaDeviceProp properties;
  DeviceLimits limits;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  CUDA_CHECK(read_device_limits(&limits));
  const std::string only = argc > 1 ? argv[1] : "";
  std::printf(
      "%s, %d multiprocessors; 24 linears 4096 <-> 11008 in one graph, median of %d replays; floor at %.2f TB/s\n",
      properties.name, properties.multiProcessorCount, kReplays, kReadTerabytesPerSecond);
  std::string formats;
  for (const WeightFormat format : kFormats) {
    if (only.empty() || only == name_of(format))
      formats += (formats.empty() ? "" : ", ") + bench_format(format, limits);
  }
  std::printf("{\"device\": \"%s\", \"milliseconds\": {%s}}\n", properties.name, formats.c_str());
}
