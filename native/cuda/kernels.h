// Every launcher of libpilotfish_cuda: the border between host code and device code.
// A launcher takes device pointers, sizes and a stream; it allocates nothing and synchronises nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace pilotfish::cuda {

/// Rows (tokens) that one pass of the low-bit linear takes at most.
inline constexpr int kMaxLinearRows = 64;

/// Symmetric integer weights with one f16 scale a block of 32 input columns; `native/GRAPH.md` gives the packed bytes.
enum class WeightFormat { kInt4, kInt8 };

/// What decides how work is divided: read from the device once, at load.
struct DeviceLimits {
  int num_sms;
  size_t shared_bytes_per_sm;
  size_t shared_bytes_per_block;  // with the opt-in
};

struct LowbitShape {
  WeightFormat format;
  int in_features;   // K, a multiple of 8
  int out_features;  // N, rows of the weight; gate and up together for SwiGLU
};

/// How many thread blocks share the work of one shape. Each takes an equal run of the weight, which cuts K sums at
/// places that fix the order of every addition: the plan depends on the shape and the device alone, never on the number
/// of rows, and that keeps a row's bits the same in every pass.
struct LowbitPlan {
  int num_blocks;
};

enum class OutputType { kF16, kF32 };
enum class Activation { kNone, kSwiGlu };

struct LowbitLinear {
  LowbitShape shape;
  LowbitPlan plan;
  const void* weights;   // repacked, see repack_lowbit()
  const void* x;         // f16 [num_rows, in_features]
  const float* bias;     // [out_features] or null; gate and up interleaved by 16 as the weight rows
  const void* residual;  // [num_rows, columns of out] of the output type, or null; may alias out
  void* out;             // [num_rows, out_features], half as many columns with SwiGLU
  OutputType output_type;
  Activation activation;
  int num_rows;     // 1..kMaxLinearRows
  float* partials;  // lowbit_partial_bytes(), every byte 0xFF before the first launch and again after each one;
                    // shared by all linears of a stream
};

/// Reads the limits of the current device.
cudaError_t read_device_limits(DeviceLimits* limits_out);

/// One thread block a multiprocessor, where there is work for all.
LowbitPlan plan_lowbit_linear(const LowbitShape& shape, const DeviceLimits& limits);

/// Bytes of the repacked weight of `shape`.
size_t lowbit_weight_bytes(const LowbitShape& shape);
/// Bytes of `partials` for `num_rows` rows.
size_t lowbit_partial_bytes(const LowbitPlan& plan, int num_rows);

/// Reorders a packed weight of the bundle (device memory, tiles of 16 rows) into the order that the linear's
/// tensor-core operands are read in. `weights_out` holds lowbit_weight_bytes().
cudaError_t repack_lowbit(const LowbitShape& shape, const void* packed, void* weights_out, cudaStream_t stream);

/// y = W x (+ bias), SwiGLU where asked, (+ residual). f16 activations times exact integers, f32 scales and sums. A
/// row's bits do not depend on num_rows. On compute capability 9.0 and later it starts before its predecessor in the
/// stream has ended and reads its weights ahead: the weights must be complete before that predecessor is launched.
/// Blocks of a launch wait for each other's sums: do not run it beside another such kernel on a stream of higher
/// priority. Returns cudaErrorInvalidValue for sizes outside the limits above.
cudaError_t launch_lowbit_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream);

}  // namespace pilotfish::cuda
