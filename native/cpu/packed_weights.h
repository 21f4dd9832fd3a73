// The packed weight formats of GRAPH.md: sizes and offsets within a group of 16 rows by 64 columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pilotfish {

enum class WeightFormat { kInt4, kInt4Asym, kInt8, kF16, kF32 };

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kBlockColumns = 32;
inline constexpr int64_t kGroupColumns = 64;

inline constexpr size_t kInt4BlockBytes = 256;  // [4 quads][16 rows][4 bytes]
inline constexpr size_t kInt8BlockBytes = 512;  // [8 quads][16 rows][4 bytes]
inline constexpr size_t kScaleBytes = 32;       // one f16 a row, for one block

constexpr bool is_integer(WeightFormat format) { return format <= WeightFormat::kInt8; }

constexpr size_t group_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt4:
      return 2 * (kInt4BlockBytes + kScaleBytes);
    case WeightFormat::kInt4Asym:
      return 2 * (kInt4BlockBytes + 2 * kScaleBytes);
    case WeightFormat::kInt8:
      return 2 * (kInt8BlockBytes + kScaleBytes);
    case WeightFormat::kF16:
      return kGroupColumns * kTileRows * 2;
    case WeightFormat::kF32:
      break;
  }
  return kGroupColumns * kTileRows * 4;
}

constexpr int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

constexpr size_t tile_bytes(WeightFormat format, int64_t num_columns) {
  return static_cast<size_t>(ceil_div(num_columns, kGroupColumns)) * group_bytes(format);
}

constexpr size_t packed_bytes(WeightFormat format, int64_t num_rows, int64_t num_columns) {
  return static_cast<size_t>(ceil_div(num_rows, kTileRows)) * tile_bytes(format, num_columns);
}

// "int4", "int4_asym", "int8", "f16" or "f32"; throws std::invalid_argument naming anything else.
WeightFormat parse_weight_format(std::string_view name);

}  // namespace pilotfish
