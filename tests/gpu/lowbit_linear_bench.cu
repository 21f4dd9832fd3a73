// Milliseconds of the chain of 24 low-bit linears 4096 <-> 11008 in a captured graph, and of single shapes.
#include <algorithm>
#include <cstring>
#include <string>

#include "gpu_test.h"

namespace pilotfish::cuda::test {
namespace {

constexpr int kReplays = 60;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Median milliseconds of a replay of what `enqueue` puts on a stream.
template <class Enqueue>
double time_graph(const Enqueue& enqueue) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA_CHECK(cudaStreamCreate(&stream));
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  enqueue(stream);
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = -10; i < kReplays; ++i) {
    CUDA_CHECK(cudaEventRecord(begin, stream));
    CUDA_CHECK(cudaGraphLaunch(executable, stream));
    CUDA_CHECK(cudaEventRecord(end, stream));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 0) times.push_back(ms);
  }
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  CUDA_CHECK(cudaGraphExecDestroy(executable));
  CUDA_CHECK(cudaGraphDestroy(graph));
  CUDA_CHECK(cudaStreamDestroy(stream));
  return median(times);
}

/// Linears of the given shapes, each reading what the one before wrote.
class Chain {
 public:
  Chain(const std::vector<LowbitShape>& shapes, const std::vector<LowbitPlan>& plans) : shapes_(shapes), plans_(plans) {
    CUDA_CHECK(read_device_limits(&limits_));
    size_t widest = 0, partial_bytes = 0;
    std::vector<PackedWeight> originals;
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (i < 2) originals.push_back(random_weight(shapes[i], i + 7));
      weights_.push_back(repacked(originals[i % originals.size()]));
      weight_bytes_ += weights_.back().bytes();
      widest = std::max<size_t>({widest, static_cast<size_t>(shapes[i].in_features), static_cast<size_t>(shapes[i].out_features)});
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      partial_bytes = std::max(partial_bytes, lowbit_partial_bytes(plans[i % plans.size()], kMaxLinearRows));
    }
    buffers_.emplace_back(random_halves(widest * kMaxLinearRows, 3));
    buffers_.emplace_back(widest * kMaxLinearRows);
    partials_.emplace_back(partial_bytes / sizeof(float));
  }

  size_t weight_bytes() const { return weight_bytes_; }
  void fill_input(const std::vector<__half>& values) const {
    CUDA_CHECK(cudaMemcpy(buffers_[0].get(), values.data(), values.size() * 2, cudaMemcpyHostToDevice));
  }
  std::vector<__half> output() const { return buffers_[shapes_.size() % 2].read(); }

  template <class After>
  void enqueue(int num_rows, cudaStream_t stream, const After& after) const {
    for (size_t i = 0; i < shapes_.size(); ++i) {
      LowbitLinear linear = {};
      linear.shape = shapes_[i];
      linear.plan = plans_[i % plans_.size()];
      linear.weights = weights_[i].get();
      linear.x = buffers_[i % 2].get();
      linear.out = buffers_[(i + 1) % 2].get();
      linear.num_rows = num_rows;
      linear.partials = partials_[0].get();
      CUDA_CHECK(launch_lowbit_linear(linear, limits_, stream));
      after();
    }
  }
  double time(int num_rows) const {
    return time_graph([&](cudaStream_t stream) { enqueue(num_rows, stream, [] {}); });
  }

 private:
  std::vector<LowbitShape> shapes_;
  std::vector<LowbitPlan> plans_;
  DeviceLimits limits_;
  std::vector<DeviceArray<uint8_t>> weights_;
  std::vector<DeviceArray<__half>> buffers_;
  std::vector<DeviceArray<float>> partials_;
  size_t weight_bytes_ = 0;
};

std::vector<LowbitShape> chain_shapes(WeightFormat format) {
  std::vector<LowbitShape> shapes;
  for (int i = 0; i < 24; ++i) shapes.push_back(i % 2 ? LowbitShape{format, 11008, 4096} : LowbitShape{format, 4096, 11008});
  return shapes;
}

double device_copy_terabytes_per_second() {
  const DeviceArray<uint8_t> from(size_t{1} << 30), to(size_t{1} << 30);
  const double ms = time_graph([&](cudaStream_t stream) {
    CUDA_CHECK(cudaMemcpyAsync(to.get(), from.get(), from.bytes(), cudaMemcpyDeviceToDevice, stream));
  });
  return 2.0 * from.bytes() / ms * 1e-9;
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

void print_row(const char* name, const Chain& chain, std::initializer_list<int> row_counts) {
  std::printf("%-34s", name);
  for (const int rows : row_counts) std::printf(" %8.4f", chain.time(rows));
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main() {
  using namespace pilotfish::cuda;
  using namespace pilotfish::cuda::test;
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, %d SMs; device copy %.2f TB/s\n", properties.name, properties.multiProcessorCount,
              device_copy_terabytes_per_second());
  DeviceLimits limits;
  CUDA_CHECK(read_device_limits(&limits));
  for (const WeightFormat format : {WeightFormat::kInt4, WeightFormat::kInt8}) {
    const std::vector<LowbitShape> shapes = chain_shapes(format);
    std::vector<LowbitPlan> plans;
    for (int i = 0; i < 2; ++i) plans.push_back(plan_lowbit_linear(shapes[i], limits));
    Chain chain(shapes, plans);
    std::printf("chain %.1f MB, floor at 3.0 TB/s %.3f ms; ms at rows 1 2 4 8 16 32 64\n", chain.weight_bytes() * 1e-6,
                chain.weight_bytes() / 3.0e9);
    for (const int rows : {1, 8, 16, 64}) std::printf("rows %d overlapped bits %s\n", rows, overlaps_without_races(chain, rows) ? "equal" : "DIFFER");
    for (int twice = 0; twice < 2; ++twice) {
      const std::string name = std::string(format == WeightFormat::kInt4 ? "int4" : "int8") + " default plan";
      print_row(name.c_str(), chain, {1, 2, 4, 8, 16, 32, 64});
    }
  }
}
