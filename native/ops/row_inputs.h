// Attributes and inputs of the operators that pick, join and norm rows: read and checked here for CPU and CUDA alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/norm_activation.h"
#include "kernel_io.h"
#include "operator_base.h"

namespace pilotfish {

inline constexpr InputSpec kFloatInput{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT};
inline constexpr InputSpec kOptionalFloatInput{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true};

// ---- GatherRows: x f32[N, C], rows i32[n] ----

inline constexpr std::array<InputSpec, 2> kGatherRowsInputs = {{kFloatInput, {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32}}};

// Throws unless the shapes fit. The numbers of rows lie where the operator runs.
void check_gather_rows(const Tensor& x, const Tensor& rows);

// ---- Join: up to 8 matrices ----

inline constexpr size_t kMostJoined = 8;
inline constexpr std::array<InputSpec, kMostJoined> kJoinInputs = {
    {kFloatInput, kOptionalFloatInput, kOptionalFloatInput, kOptionalFloatInput, kOptionalFloatInput,
     kOptionalFloatInput, kOptionalFloatInput, kOptionalFloatInput}};

enum class JoinAxis { kRows, kColumns };
JoinAxis join_axis(const KernelInfo& node);

struct JoinedShape {
  int64_t num_rows, num_columns;
};
// Of the result. Throws unless the parts have as many columns, or rows, each.
JoinedShape check_join(JoinAxis axis, std::span<const Tensor> parts);

// ---- RowsPart: x f32[num_parts * n, C] ----

inline constexpr std::array<InputSpec, 1> kRowsPartInputs = {{kFloatInput}};

struct RowsPart {
  int64_t part, num_parts;
};
RowsPart rows_part(const KernelInfo& node);
// Rows of the part.
int64_t check_rows_part(const RowsPart& settings, const Tensor& x);

// ---- NormActivation: x f32[.., C], weight f32[C]?, bias f32[C]?, residual as x? ----

inline constexpr std::array<InputSpec, 4> kNormInputs = {
    {kFloatInput, kOptionalFloatInput, kOptionalFloatInput, kOptionalFloatInput}};

NormSettings norm_settings(const KernelInfo& node);

struct NormInputs {
  Tensor x, weight, bias, residual;
  int64_t num_rows, num_columns;
};
NormInputs check_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual);

// All inputs that a node has, of a context of either device.
template <typename Context, size_t kCount>
std::array<Tensor, kCount> inputs_of(const Context& context, const std::array<InputSpec, kCount>&) {
  std::array<Tensor, kCount> inputs;
  for (size_t index = 0; index < kCount; ++index) inputs[index] = context.input(index);
  return inputs;
}

}  // namespace pilotfish
