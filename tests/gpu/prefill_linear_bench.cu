// Microseconds of the linears of a 7B layer for prompts: in passes of 64 rows and at once.
#include <algorithm>
#include <array>

#include "gpu_test.h"
#include "graph_timer.h"

namespace pilotfish::cuda::test {
namespace {

constexpr int kCopies = 4, kWarmReplays = 3, kReplays = 15, kMostRows = 1024;  // copies of a weight: none stays in L2

class Linears {
 public:
  Linears(const LowbitShape& shape, const DeviceLimits& limits)
      : shape_(shape),
        limits_(limits),
        plan_(plan_lowbit_linear(shape, limits)),
        x_(random_halves(size_t(kMostRows) * shape.in_features, 3)),
        out_(size_t(kMostRows) * shape.out_features),
        partials_(lowbit_partial_bytes(plan_, kMaxLinearRows) / sizeof(float)),
        scratch_(prefill_scratch_bytes(shape, kMaxPrefillRows)) {
    const PackedWeight weight = random_weight(shape, 7);
    for (int i = 0; i < kCopies; ++i) weights_.push_back(repacked(weight));
  }

  double at_once(int rows) const {
    return time(
        [&](const LowbitLinear& linear, cudaStream_t stream) {
          CUDA_CHECK(launch_prefill_linear(linear, scratch_.get(), limits_, stream));
        },
        rows, kMaxPrefillRows);
  }
  double in_small_passes(int rows) const {
    return time([&](const LowbitLinear& linear,
                    cudaStream_t stream) { CUDA_CHECK(launch_lowbit_linear(linear, limits_, stream)); },
                rows, kMaxLinearRows);
  }

 private:
  template <class Launch>
  double time(const Launch& launch, int rows, int at_most) const {
    const double ms = time_graph(
        [&](cudaStream_t stream) {
          Turn turn = Turn::kFirst;
          for (const DeviceArray<uint8_t>& weight : weights_) {
            for (int first = 0; first < rows; first += at_most) {
              LowbitLinear linear = {};
              linear.shape = shape_;
              linear.plan = plan_;
              linear.weights = weight.get();
              linear.x = x_.get() + size_t(first) * shape_.in_features;
              linear.out = out_.get() + size_t(first) * shape_.out_features;
              linear.output_type = OutputType::kF32;
              linear.num_rows = std::min(rows - first, at_most);
              linear.passes = Passes::kThroughCache;
              linear.turn = turn = turn == Turn::kFirst ? Turn::kSecond : Turn::kFirst;
              linear.partials = partials_.get();
              launch(linear, stream);
            }
          }
        },
        kWarmReplays, kReplays);
    return ms * 1e3 / kCopies;
  }

  LowbitShape shape_;
  DeviceLimits limits_;
  LowbitPlan plan_;
  DeviceArray<__half> x_;
  DeviceArray<float> out_, partials_;
  DeviceArray<uint8_t> scratch_;
  std::vector<DeviceArray<uint8_t>> weights_;
};

constexpr int kRowCounts[] = {64, 96, 128, 192, 256, 384, 512, 1024};

void bench(WeightFormat format, const DeviceLimits& limits) {
  constexpr int kShapes[][2] = {{12288, 4096}, {4096, 4096}, {22016, 4096}, {4096, 11008}};
  std::printf("%s, us: passes of 64 rows | at once (TFLOP/s)\n%6s", name_of(format), "rows");
  for (const auto& [n, k] : kShapes) std::printf("   %12d x %-12d", n, k);
  std::printf(" | a layer\n");
  std::vector<Linears> linears;
  for (const auto& [n, k] : kShapes) linears.emplace_back(LowbitShape{format, k, n}, limits);
  for (const int rows : kRowCounts) {
    std::printf("%6d", rows);
    double passes_of_layer = 0, once_of_layer = 0;
    for (size_t i = 0; i < linears.size(); ++i) {
      const double passes = linears[i].in_small_passes(rows), once = linears[i].at_once(rows);
      passes_of_layer += passes;
      once_of_layer += once;
      std::printf("   %7.1f | %7.1f (%5.0f)", passes, once, 2e-6 * rows * kShapes[i][0] * kShapes[i][1] / once);
      std::fflush(stdout);
    }
    std::printf(" | %7.1f %7.1f\n", passes_of_layer, once_of_layer);
  }
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main(int argc, char**) {
  using namespace pilotfish::cuda;
  using namespace pilotfish::cuda::test;
  DeviceLimits limits;
  CUDA_CHECK(read_device_limits(&limits));
  bench(WeightFormat::kInt4, limits);
  if (argc > 1) return 0;  // any argument: int4 alone
  bench(WeightFormat::kInt4Asym, limits);
  bench(WeightFormat::kInt8, limits);
  bench(WeightFormat::kF16, limits);
}
