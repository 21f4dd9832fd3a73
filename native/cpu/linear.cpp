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
// A row is uneven where its largest block is more than so many times the mean of all.
constexpr float kUneven = 16.0f;

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

// Runs multiply(first_tile, last_tile) on all tiles, some of them a task.
template <typename Multiply>
void run_tiles(const LinearWeights& weights, const Parallel& parallel, const Multiply& multiply) {
  const int64_t num_tiles = ceil_div(weights.num_outputs(), kTileRows);
  const int64_t task_tiles = tiles_per_task(weights, num_tiles, parallel.num_workers());
  const WeightSpan weight{weights.packed, packed_bytes(weights.format, weights.out_features, weights.in_features)};
  const auto task = [&](int64_t index) { multiply(index * task_tiles, std::min(num_tiles, (index + 1) * task_tiles)); };
  parallel.run(ceil_div(num_tiles, task_tiles), task, weight);
}

// Whether one block of a packed row is so large that its scale rounds what matters of it away.
bool is_uneven(const std::byte* panel, const LinearWeights& weights, int64_t num_rows, int64_t r) {
  const int64_t num_blocks = ceil_div(weights.in_features, kGroupColumns) * 2;
  float largest = 0, sum = 0;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const std::byte* const at = panel + num_rows * (block * kPanelBlockBytes + kBlockColumns);
    const float scale = reinterpret_cast<const float*>(at)[r];
    largest = std::max(largest, scale);
    sum += scale;
  }
  return largest * static_cast<float>(num_blocks) > kUneven * sum;
}

// Gate and up of a row once more, with what its rounding has left. A model may add thousands to a few channels of a
// text's first token and take them away again by the product of a gate and an up that a few spikes of its row decide.
void refine_row(const LinearWeights& weights, const LinearRows& row, std::byte* panel, const Parallel& parallel) {
  const LinearKernels& kernels = linear_kernels();
  kernels.pack_refined(weights, row.x, panel);
  run_tiles(weights, parallel, [&](int64_t first_tile, int64_t last_tile) {
    kernels.multiply_refined(weights, panel, row, first_tile, last_tile);
  });
}

}  // namespace

void linear(const LinearWeights& weights, const LinearRows& rows, const Parallel& parallel) {
  if (rows.num_rows == 0) return;
  thread_local Scratch scratch;
  const LinearKernels& kernels = linear_kernels();
  const int64_t num_panels = ceil_div(rows.num_rows, kernels.max_panel_rows);
  // Panels differ by at most one row; panel i holds rows [first_row(i), first_row(i + 1)).
  const auto first_row = [&](int64_t panel) { return rows.num_rows * panel / num_panels; };
  const auto num_rows = [&](int64_t panel) { return first_row(panel + 1) - first_row(panel); };
  const size_t row_bytes = panel_bytes(weights.format, weights.in_features, 1);
  const size_t panels_bytes = row_bytes * static_cast<size_t>(rows.num_rows);
  std::byte* const panels = scratch.reserve(panels_bytes + 2 * row_bytes);  // two rows for one that is refined
  const auto panel_at = [&](int64_t panel) { return panels + row_bytes * static_cast<size_t>(first_row(panel)); };

  const auto pack = [&](int64_t panel) {
    kernels.pack(weights, rows.x + first_row(panel) * weights.in_features, num_rows(panel), panel_at(panel));
  };
  if (rows.num_rows * weights.in_features <= kSerialPackElements) {
    for (int64_t panel = 0; panel < num_panels; ++panel) pack(panel);
  } else {
    parallel.run(num_panels, pack);
  }

  run_tiles(weights, parallel, [&](int64_t first_tile, int64_t last_tile) {
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      kernels.multiply(weights, panel_at(panel), panel_rows(rows, weights, first_row(panel), num_rows(panel)),
                       first_tile, last_tile);
    }
  });
  if (weights.activation != Activation::kSwiglu || !is_integer(weights.format)) return;
  for (int64_t panel = 0; panel < num_panels; ++panel) {
    for (int64_t r = 0; r < num_rows(panel); ++r) {
      if (!is_uneven(panel_at(panel), weights, num_rows(panel), r)) continue;
      refine_row(weights, panel_rows(rows, weights, first_row(panel) + r, 1), panels + panels_bytes, parallel);
    }
  }
}

}  // namespace pilotfish
