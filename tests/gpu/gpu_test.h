// What the GPU tests and benchmarks share: checked calls, device buffers, random packed weights with their double
// oracle.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "kernels.h"

#define CUDA_CHECK(call)                                                                              \
  do {                                                                                                \
    const cudaError_t status = (call);                                                                \
    if (status != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (false)

namespace pilotfish::cuda::test {

/// Device memory that frees itself. Every byte starts as 0xFF, a NaN in f16 and f32: what nobody writes is noticed.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) {
    CUDA_CHECK(cudaMalloc(&data_, bytes() ? bytes() : 1));
    poison();
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    CUDA_CHECK(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* get() const { return static_cast<T*>(data_); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  void poison() const { CUDA_CHECK(cudaMemset(data_, 0xFF, bytes())); }
  void clear() const { CUDA_CHECK(cudaMemset(data_, 0, bytes())); }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    CUDA_CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  void* data_ = nullptr;
  size_t size_;
};

/// Runs body(i) for i < count on all processor threads.
template <class Body>
void parallel_for(int count, const Body& body) {
  const int num_threads = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (int first = 0; first < num_threads; ++first) {
    threads.emplace_back([=, &body] {
      for (int i = first; i < count; i += num_threads) body(i);
    });
  }
}

inline int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Random integers with random f16 scales, or random f16, packed as native/GRAPH.md says.
struct PackedWeight {
  LowbitShape shape;
  std::vector<uint8_t> bytes;

  int group_bytes() const {
    if (shape.format == WeightFormat::kF16) return 2048;
    return shape.format == WeightFormat::kInt4 ? 576 : shape.format == WeightFormat::kInt4Asym ? 640 : 1088;
  }
  int plane_bytes() const { return shape.format == WeightFormat::kInt4Asym ? 128 : 64; }  // scales, and offsets
  const uint8_t* group(int row, int column) const {
    const size_t groups = round_up(shape.in_features, 64) / 64;
    return bytes.data() + (row / 16 * groups + column / 64) * group_bytes();
  }
  double scale(int row, int column) const {
    const auto* scales = reinterpret_cast<const __half*>(group(row, column) + group_bytes() - plane_bytes());
    return __half2float(scales[column % 64 / 32 * 16 + row % 16]);
  }
  double offset(int row, int column) const {
    if (shape.format != WeightFormat::kInt4Asym) return 0;
    const auto* offsets = reinterpret_cast<const __half*>(group(row, column) + group_bytes() - 64);
    return __half2float(offsets[column % 64 / 32 * 16 + row % 16]);
  }
  double value(int row, int column) const {
    if (shape.format == WeightFormat::kF16) {
      return __half2float(reinterpret_cast<const __half*>(group(row, column))[column % 64 * 16 + row % 16]);
    }
    return scale(row, column) * integer(row, column) + offset(row, column);
  }
  int integer(int row, int column) const {
    const int block = column % 64 / 32, in_block = column % 32;
    if (shape.format == WeightFormat::kInt8) {
      return group(row, column)[((block * 8 + in_block / 4) * 16 + row % 16) * 4 + in_block % 4] - 128;
    }
    const int byte = group(row, column)[((block * 4 + in_block % 16 / 4) * 16 + row % 16) * 4 + in_block % 4];
    return (in_block < 16 ? byte & 15 : byte >> 4) - (shape.format == WeightFormat::kInt4 ? 8 : 0);
  }
};

/// One group of f16 weights, [64 columns][16 rows].
inline void fill_halves(const LowbitShape& shape, int first_row, int first_column, std::mt19937_64& random,
                        uint8_t* group) {
  std::normal_distribution<float> normal(0.0f, 1 / std::sqrt(static_cast<float>(shape.in_features)));
  auto* weights = reinterpret_cast<__half*>(group);
  for (int i = 0; i < 64 * 16; ++i) {
    const bool padding = first_row + i % 16 >= shape.out_features || first_column + i / 16 >= shape.in_features;
    weights[i] = __float2half(padding ? 0.0f : normal(random));
  }
}

/// Scales around 1 / sqrt(K) keep the outputs near the size of the inputs. Padding has zero weights.
inline PackedWeight random_weight(const LowbitShape& shape, uint64_t seed) {
  PackedWeight weight{shape, {}};
  const int rows = round_up(shape.out_features, 16), columns = round_up(shape.in_features, 64);
  const size_t group_bytes = weight.group_bytes(), groups = columns / 64;
  weight.bytes.resize(rows / 16 * groups * group_bytes);
  const float typical =
      (shape.format == WeightFormat::kInt8 ? 0.015f : 0.2f) / std::sqrt(static_cast<float>(shape.in_features));
  parallel_for(rows / 16, [&](int tile) {
    std::mt19937_64 random(seed * 1000003 + tile);
    for (size_t index = 0; index < groups; ++index) {
      uint8_t* group = weight.bytes.data() + (tile * groups + index) * group_bytes;
      if (shape.format == WeightFormat::kF16) {
        fill_halves(shape, tile * 16, static_cast<int>(index) * 64, random, group);
        continue;
      }
      for (size_t i = 0; i < group_bytes - weight.plane_bytes(); i += 8) {
        const uint64_t word = random();
        for (int j = 0; j < 8; ++j) {
          const uint8_t byte = static_cast<uint8_t>(word >> (8 * j));
          group[i + j] = shape.format == WeightFormat::kInt8 && byte == 0 ? 1 : byte;  // -128 is not used
        }
      }
      auto* scales = reinterpret_cast<__half*>(group + group_bytes - weight.plane_bytes());
      for (int i = 0; i < 32; ++i) {
        const int row = tile * 16 + i % 16, column = static_cast<int>(index) * 64 + i / 16 * 32;
        const bool padding = row >= shape.out_features || column >= shape.in_features;
        const float factor = 0.5f + static_cast<float>(random() % 1024) / 1024.0f;
        scales[i] = __float2half(padding ? 0.0f : typical * factor);
        if (shape.format == WeightFormat::kInt4Asym)
          scales[32 + i] = __float2half(padding ? 0.0f : -7 * typical * factor);
      }
    }
  });
  return weight;
}

inline std::vector<__half> random_halves(size_t count, uint64_t seed, float deviation = 1.0f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<__half> values(count);
  for (__half& value : values) value = __float2half(normal(random));
  return values;
}

inline std::vector<float> random_floats(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// y[row] = sum over k of weight[row, k] x[k], in double.
inline std::vector<double> multiply_in_double(const PackedWeight& weight, std::span<const __half> x) {
  std::vector<double> wide(x.size());
  for (size_t k = 0; k < x.size(); ++k) wide[k] = __half2float(x[k]);
  std::vector<double> y(weight.shape.out_features);
  parallel_for(weight.shape.out_features, [&](int row) {
    double sum = 0;
    for (int k = 0; k < weight.shape.in_features; ++k) {
      sum += weight.value(row, k) * wide[k];
    }
    y[row] = sum;
  });
  return y;
}

inline const char* name_of(WeightFormat format) {
  return format == WeightFormat::kInt4       ? "int4"
         : format == WeightFormat::kInt4Asym ? "int4_asym"
         : format == WeightFormat::kInt8     ? "int8"
                                             : "f16";
}

inline constexpr WeightFormat kFormats[] = {WeightFormat::kInt4, WeightFormat::kInt4Asym, WeightFormat::kInt8};
inline constexpr WeightFormat kAllFormats[] = {WeightFormat::kInt4, WeightFormat::kInt4Asym, WeightFormat::kInt8,
                                               WeightFormat::kF16};

/// The repacked weight on the device.
inline DeviceArray<uint8_t> repacked(const PackedWeight& weight) {
  const DeviceArray<uint8_t> packed(weight.bytes);
  DeviceArray<uint8_t> result(lowbit_weight_bytes(weight.shape));
  CUDA_CHECK(repack_lowbit(weight.shape, packed.get(), result.get(), nullptr));
  CUDA_CHECK(cudaDeviceSynchronize());
  return result;
}

}  // namespace pilotfish::cuda::test
