#include "row_steps.h"

#include <algorithm>

#include "instruction_set.h"
#include "packed_weights.h"
#include "row_steps_kernels.h"
#include "scratch.h"

namespace pilotfish {
namespace {

// Going through fewer elements than this is quicker than waking another thread.
constexpr uint64_t kSerialElements = 16 * 1024;

RowStepsKernel row_steps_kernel() {
  switch (instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return avx512::kRowStepsKernel;
    case InstructionSet::kAvx2:
      return avx2::kRowStepsKernel;
#elif defined(__aarch64__)
    case InstructionSet::kI8mm:
    case InstructionSet::kDotprod:
    case InstructionSet::kNeon:
      return neon::kRowStepsKernel;
#endif
    default:
      return portable::kRowStepsKernel;
  }
}

RowPlaces places_of(const RowProgram& program, const RowTensors& tensors, int64_t row, float* scratch) {
  RowPlaces places{.inputs = tensors.inputs, .outputs = tensors.outputs, .scratch = scratch};
  for (size_t i = 0; i < static_cast<size_t>(program.num_row_inputs); ++i) {
    places.inputs[i] += row * program.input_widths[i];
  }
  for (size_t i = 0; i < program.output_widths.size(); ++i) places.outputs[i] += row * program.output_widths[i];
  return places;
}

}  // namespace

void row_steps(const RowProgram& program, const RowTensors& tensors, const Parallel& parallel) {
  const RowStepsKernel kernel = row_steps_kernel();
  const int64_t num_columns = program.num_columns;
  const int64_t num_chunks = program.is_columnwise ? ceil_div(num_columns, kRowChunkColumns) : 1;
  const auto scratch_bytes = static_cast<size_t>(program.num_scratch) * sizeof(float);
  const auto run = [&](int64_t task) {
    thread_local Scratch scratch;
    const int64_t first = task % num_chunks * kRowChunkColumns;
    const RowPlaces places =
        places_of(program, tensors, task / num_chunks, reinterpret_cast<float*>(scratch.reserve(scratch_bytes)));
    kernel(program, places, first, std::min(num_columns - first, kRowChunkColumns));
  };
  const int64_t num_tasks = tensors.num_rows * num_chunks;
  if (program.num_elements * static_cast<uint64_t>(tensors.num_rows) > kSerialElements) {
    return parallel.run(num_tasks, run);
  }
  for (int64_t task = 0; task < num_tasks; ++task) run(task);
}

}  // namespace pilotfish
