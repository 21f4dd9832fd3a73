#include "linear.h"

#include <algorithm>

#include "instruction_set.h"
#include "linear_kernels.h"
#include "scratch.h"

namespace pilotfish {
namespace {

// Weights a task reads at most: they stay in a core's second-level cache while all panels pass over them.
constexpr int64_t kTaskWeightBytes = 256 * 1024;
// Tasks a worker at least, so that a slow core does not hold up the others.
constexpr int64_t kTasksPerWorker = 12;
// Packing fewer elements than this is quicker than waking another thread.
constexpr int64_t kSerialPackElements = 16 * 1024;

const LinearKernels& linear_kernels() {
  switch (instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return avx512::kLinearKernels;
    case InstructionSet::kAvx2:
      return avx2::kLinearKernels;
#elif defined(__aarch64__)
    case InstructionSet::kI8mm:
      return i8mm::kLinearKernels;
    case InstructionSet::kDotprod:
      return dotprod::kLinearKernels;
    case InstructionSet::kNeon:
      return neon::kLinearKernels;
#endif
    default:
      return portable::kLinearKernels;
  }
}

LinearRows panel_rows(const LinearRows& rows, const LinearWeights& weights, int64_t first, int64_t count) {
  const int64_t offset = first * weights.num_outputs();
  return {count, rows.x + first * weights.in_features, rows.residual == nullptr ? nullptr : rows.residual + offset,
          rows.y + offset};
}

int64_t tiles_per_task(const LinearWeights& weights, int64_t num_tiles, int64_t num_workers) {
  const int64_t weight_tiles = weights.activation == Activation::kSwiglu ? 2 : 1;
  const auto bytes = static_cast<int64_t>(tile_bytes(weights.format, weights.in_features)) * weight_tiles;
  const int64_t balanced = num_tiles / (num_workers * kTasksPerWorker);
  return std::max<int64_t>(1, std::min(balanced, kTaskWeightBytes / bytes));
}

}  // namespace

void linear(const LinearWeights& weights, const LinearRows& rows, const Parallel& parallel) {
  if (rows.num_rows == 0) return;
  thread_local Scratch scratch;
  const LinearKernels& kernels = linear_kernels();
  const int64_t num_panels = ceil_div(rows.num_rows, kernels.max_panel_rows);
  // Panels differ by at most one row; panel i holds rows [first_row(i), first_row(i + 1)).
  const auto first_row = [&](int64_t panel) { return rows.num_rows * panel / num_panels; };
  const size_t row_bytes = panel_bytes(weights.format, weights.in_features, 1);
  std::byte* const panels = scratch.reserve(row_bytes * static_cast<size_t>(rows.num_rows));
  const auto panel_at = [&](int64_t panel) { return panels + row_bytes * static_cast<size_t>(first_row(panel)); };

  const auto pack = [&](int64_t panel) {
    const int64_t first = first_row(panel);
    kernels.pack(weights, rows.x + first * weights.in_features, first_row(panel + 1) - first, panel_at(panel));
  };
  if (rows.num_rows * weights.in_features <= kSerialPackElements) {
    for (int64_t panel = 0; panel < num_panels; ++panel) pack(panel);
  } else {
    parallel.run(num_panels, pack);
  }

  const int64_t num_tiles = ceil_div(weights.num_outputs(), kTileRows);
  const int64_t task_tiles = tiles_per_task(weights, num_tiles, parallel.num_workers());
  const WeightSpan weight{weights.packed, packed_bytes(weights.format, weights.out_features, weights.in_features)};
  const auto multiply = [&](int64_t task) {
    const int64_t first_tile = task * task_tiles;
    const int64_t last_tile = std::min(num_tiles, first_tile + task_tiles);
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      const int64_t first = first_row(panel);
      kernels.multiply(weights, panel_at(panel), panel_rows(rows, weights, first, first_row(panel + 1) - first),
                       first_tile, last_tile);
    }
  };
  parallel.run(ceil_div(num_tiles, task_tiles), multiply, weight);
}

}  // namespace pilotfish
