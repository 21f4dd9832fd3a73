// Runs a program of RowSteps: a thread block a row, or a chunk of its columns where they do not depend on each other.
// Values in between are in shared memory. Sums have an order that the step's sizes alone decide.
#include <algorithm>
#include <bit>
#include <limits>

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;

enum class Place : int16_t { kNumber, kInput, kOutput, kScratch };

struct Operand {
  Place place;
  int16_t index;   // of the input or output
  int32_t offset;  // or the bits of the number
  int32_t strides[3];
};

struct Step {
  int16_t kind;
  int16_t output;  // or -1: its value is in the scratch memory from `slot` on
  int32_t slot, dims[3], num_first;
  Operand operands[3];
};

// What a kernel's parameters hold, beside the steps.
struct Task {
  const float* inputs[kMostRowInputs];
  float* outputs[kMostRowOutputs];
  int32_t input_widths[kMostRowInputs];  // 0: a vector, the same for all rows
  int32_t output_widths[kMostRowOutputs];
  int32_t num_steps, chunk_columns;  // chunk_columns 0: all columns at once
};

template <size_t kMostSteps>
struct Program : Task {
  Step steps[kMostSteps];
};

// Parameters are copied at each launch: most programs are short.
constexpr size_t kFewSteps = 44;
static_assert(sizeof(Program<kFewSteps>) <= 4096);
static_assert(sizeof(Program<kMostRowSteps>) <= 32764);  // from CUDA 12.1 on

// An operand's element 0 for this row and chunk, and where others are.
struct Source {
  const float* data;
  int32_t strides[3];
  float number;
  bool is_input;  // which an earlier kernel may have written

  __device__ float at(int i0, int i1, int i2) const {
    if (!data) return number;
    const float* const element = data + static_cast<size_t>(i0) * strides[0] + static_cast<size_t>(i1) * strides[1] +
                                 static_cast<size_t>(i2) * strides[2];
    return is_input ? __ldcg(element) : *element;
  }
};

__device__ float* output_of(const Task& task, int output, int first) {
  return task.outputs[output] + static_cast<size_t>(blockIdx.x) * task.output_widths[output] + first;
}

__device__ Source source_of(const Task& task, const Operand& operand, int first, float* scratch) {
  Source source = {
      nullptr, {operand.strides[0], operand.strides[1], operand.strides[2]}, 0, operand.place == Place::kInput};
  if (operand.place == Place::kNumber) source.number = __int_as_float(operand.offset);
  if (operand.place == Place::kScratch) source.data = scratch + operand.offset;
  if (operand.place == Place::kOutput) source.data = output_of(task, operand.index, first) + operand.offset;
  if (operand.place == Place::kInput) {
    source.data = task.inputs[operand.index] + static_cast<size_t>(blockIdx.x) * task.input_widths[operand.index] +
                  operand.offset + static_cast<size_t>(first) * operand.strides[2];
  }
  return source;
}

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

__device__ float gelu_tanh(float x) { return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }

__device__ float function_of(RowStepKind kind, float a, float b, float c) {
  using enum RowStepKind;
  switch (kind) {
    case kAbs:
      return fabsf(a);
    case kExp:
      return expf(a);
    case kLog:
      return logf(a);
    case kSqrt:
      return sqrtf(a);
    case kSigmoid:
      return 1.0f / (1.0f + expf(-a));
    case kTanh:
      return tanhf(a);
    case kErf:
      return erff(a);
    case kGelu:
      return gelu(a);
    case kGeluTanh:
      return gelu_tanh(a);
    case kAdd:
      return a + b;
    case kSub:
      return a - b;
    case kMul:
      return a * b;
    case kDiv:
      return a / b;
    case kMax:
      return a > b ? a : b;
    case kMin:
      return a < b ? a : b;
    case kLess:
      return a < b ? 1.0f : 0.0f;
    case kNotLess:
      return a < b ? 0.0f : 1.0f;
    case kFma:
      return fmaf(a, b, c);
    case kSelect:
      return c >= 0.5f ? a : b;
    default:
      return a;
  }
}

__device__ float combine(RowStepKind kind, float a, float b) { return kind == RowStepKind::kDot ? a + b : fmaxf(a, b); }

__device__ float over_warp(RowStepKind kind, float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = combine(kind, value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}

// What `num_threads` threads of a reduction find, each in its own elements.
__device__ float own_part(RowStepKind kind, const Source& a, const Source& b, int i0, int i1, int count, int thread,
                          int num_threads) {
  float found = kind == RowStepKind::kDot ? 0.0f : a.at(i0, i1, 0);
  for (int i2 = thread; i2 < count; i2 += num_threads) {
    const float value = a.at(i0, i1, i2);
    found = kind == RowStepKind::kDot ? fmaf(value, b.at(i0, i1, i2), found) : fmaxf(found, value);
  }
  return found;
}

// A warp for each result where there are enough of them, else the whole block for each.
__device__ void reduce(const Step& step, const Source& a, const Source& b, float* value, float (&parts)[kWarps]) {
  const auto kind = static_cast<RowStepKind>(step.kind);
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int num_results = step.dims[0] * step.dims[1];
  if (num_results >= kWarps) {
    for (int result = warp; result < num_results; result += kWarps) {
      const int i0 = result / step.dims[1], i1 = result % step.dims[1];
      const float found = over_warp(kind, own_part(kind, a, b, i0, i1, step.dims[2], lane, kWarpSize));
      if (lane == 0) value[result] = found;
    }
    return;
  }
  for (int result = 0; result < num_results; ++result) {
    const int i0 = result / step.dims[1], i1 = result % step.dims[1];
    const float found = over_warp(kind, own_part(kind, a, b, i0, i1, step.dims[2], threadIdx.x, kThreads));
    if (lane == 0) parts[warp] = found;
    __syncthreads();
    if (threadIdx.x == 0) {
      float whole = parts[0];
      for (int i = 1; i < kWarps; ++i) whole = combine(kind, whole, parts[i]);
      value[result] = whole;
    }
    __syncthreads();
  }
}

// Elementwise steps and joins: each thread its own elements.
__device__ void each(const Step& step, const Source (&operands)[3], int num_columns, float* value) {
  const auto kind = static_cast<RowStepKind>(step.kind);
  const auto& [a, b, c] = operands;
  const auto make = [&](int i0, int i1, int i2) {
    if (kind == RowStepKind::kJoin) return i2 < step.num_first ? a.at(i0, i1, i2) : b.at(i0, i1, i2 - step.num_first);
    return function_of(kind, a.at(i0, i1, i2), b.at(i0, i1, i2), c.at(i0, i1, i2));
  };
  const int num_lines = step.dims[0] * step.dims[1];
  if (num_lines == 1) {  // most are: no division
    for (int i2 = threadIdx.x; i2 < num_columns; i2 += kThreads) value[i2] = make(0, 0, i2);
    return;
  }
  for (int element = threadIdx.x; element < num_lines * num_columns; element += kThreads) {
    const int line = element / num_columns;
    value[element] = make(line / step.dims[1], line % step.dims[1], element % num_columns);
  }
}

// The steps in shared memory, where there is room: a parameter that is read for the first time is not in a cache, and
// here all are fetched at once, while the predecessor still runs.
template <size_t kMostSteps>
__device__ const Step* staged(const Program<kMostSteps>& program) {
  if constexpr (kMostSteps > kFewSteps) {
    return program.steps;
  } else {
    __shared__ Step steps[kMostSteps];
    static_assert(sizeof(Step) % sizeof(int) == 0);
    const int num_words = program.num_steps * static_cast<int>(sizeof(Step) / sizeof(int));
    const int* const words = reinterpret_cast<const int*>(program.steps);
    for (int i = threadIdx.x; i < num_words; i += kThreads) reinterpret_cast<int*>(steps)[i] = words[i];
    __syncthreads();
    return steps;
  }
}

template <size_t kMostSteps>
__global__ void __launch_bounds__(kThreads) row_steps_kernel(const __grid_constant__ Program<kMostSteps> program) {
  extern __shared__ float scratch[];
  __shared__ float parts[kWarps];
  const int first = blockIdx.y * program.chunk_columns;
  let_dependents_start();
  const Step* const steps = staged(program);
  wait_for_predecessors();
  for (int i = 0; i < program.num_steps; ++i) {
    const Step& step = steps[i];
    const int left = step.dims[2] - first;
    const int num_columns = program.chunk_columns == 0 || left < program.chunk_columns ? left : program.chunk_columns;
    Source operands[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) operands[k] = source_of(program, step.operands[k], first, scratch);
    float* const value = step.output < 0 ? scratch + step.slot : output_of(program, step.output, first);
    if (static_cast<RowStepKind>(step.kind) < RowStepKind::kDot) {
      each(step, operands, num_columns, value);
    } else {
      reduce(step, operands[0], operands[1], value, parts);
    }
    __syncthreads();
  }
}

Operand device_operand(const RowProgram& program, const RowOperand& operand) {
  Operand result = {Place::kNumber, 0, 0, {operand.strides[0], operand.strides[1], operand.strides[2]}};
  switch (operand.source) {
    case RowOperand::Source::kNone:
      break;
    case RowOperand::Source::kNumber:
      result.offset = std::bit_cast<int32_t>(operand.number);
      break;
    case RowOperand::Source::kInput:
      result = {Place::kInput, static_cast<int16_t>(operand.index), operand.offset, {}};
      break;
    case RowOperand::Source::kStep: {
      const RowStep& made = program.steps[static_cast<size_t>(operand.index)];
      result = made.output >= 0 ? Operand{Place::kOutput, static_cast<int16_t>(made.output), operand.offset, {}}
                                : Operand{Place::kScratch, 0, made.slot + operand.offset, {}};
    }
  }
  std::copy(operand.strides.begin(), operand.strides.end(), result.strides);
  return result;
}

template <size_t kMostSteps>
Program<kMostSteps> device_program(const RowProgram& program, const RowStepTensors& tensors) {
  Program<kMostSteps> result = {};
  std::copy(tensors.inputs.begin(), tensors.inputs.end(), result.inputs);
  std::copy(tensors.outputs.begin(), tensors.outputs.end(), result.outputs);
  std::copy_n(program.input_widths.begin(), program.num_row_inputs, result.input_widths);
  std::copy(program.output_widths.begin(), program.output_widths.end(), result.output_widths);
  result.num_steps = static_cast<int32_t>(program.steps.size());
  result.chunk_columns = program.is_columnwise ? static_cast<int32_t>(kRowChunkColumns) : 0;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const RowStep& step = program.steps[i];
    Step& target = result.steps[i];
    target.kind = static_cast<int16_t>(step.kind);
    target.output = static_cast<int16_t>(step.output);
    target.slot = step.slot;
    target.num_first = step.num_first;
    std::copy(step.dims.begin(), step.dims.end(), target.dims);
    for (size_t k = 0; k < 3; ++k) target.operands[k] = device_operand(program, step.operands[k]);
  }
  return result;
}

template <size_t kMostSteps>
cudaError_t launch(const RowProgram& program, const RowStepTensors& tensors, cudaStream_t stream) {
  static_assert(kFewSteps * sizeof(Step) + kWarps * sizeof(float) <= kOwnRowStepBytes);
  const auto kernel = row_steps_kernel<kMostSteps>;
  const size_t shared_bytes = row_step_shared_bytes(program);
  constexpr size_t kDefaultSharedBytes = (48 << 10) - kOwnRowStepBytes;
  if (shared_bytes > kDefaultSharedBytes) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (status != cudaSuccess) return status;
  }
  const auto num_chunks = static_cast<unsigned>(
      program.is_columnwise ? (program.num_columns + kRowChunkColumns - 1) / kRowChunkColumns : 1);
  const dim3 grid(static_cast<unsigned>(tensors.num_rows), num_chunks);
  return launch_early(kernel, grid, kThreads, shared_bytes, stream, device_program<kMostSteps>(program, tensors));
}

}  // namespace

cudaError_t launch_row_steps(const RowProgram& program, const RowStepTensors& tensors, cudaStream_t stream) {
  if (program.steps.size() > kMostRowSteps || tensors.num_rows < 1) return cudaErrorInvalidValue;
  return program.steps.size() <= kFewSteps ? launch<kFewSteps>(program, tensors, stream)
                                           : launch<kMostRowSteps>(program, tensors, stream);
}

}  // namespace pilotfish::cuda
