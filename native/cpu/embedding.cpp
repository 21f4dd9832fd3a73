#include "embedding.h"

#include <algorithm>

#include "float16.h"

namespace pilotfish {
namespace {

// One tile row's part of a group, 64 columns.
template <WeightFormat kFormat>
void unpack_group(const std::byte* group, int64_t row, float (&out)[kGroupColumns]) {
  if constexpr (kFormat == WeightFormat::kF32) {
    const auto values = reinterpret_cast<const float*>(group);
    for (int64_t column = 0; column < kGroupColumns; ++column) out[column] = values[column * kTileRows + row];
  } else if constexpr (kFormat == WeightFormat::kF16) {
    const auto values = reinterpret_cast<const uint16_t*>(group);
    for (int64_t column = 0; column < kGroupColumns; ++column)
      out[column] = half_to_float(values[column * kTileRows + row]);
  } else {
    constexpr bool kIsInt8 = kFormat == WeightFormat::kInt8, kIsAsym = kFormat == WeightFormat::kInt4Asym;
    constexpr int64_t kBlockBytes = kIsInt8 ? kInt8BlockBytes : kInt4BlockBytes;
    const auto bytes = reinterpret_cast<const uint8_t*>(group);
    const auto scales = reinterpret_cast<const uint16_t*>(group + 2 * kBlockBytes) + row;
    for (int64_t column = 0; column < kGroupColumns; ++column) {
      const int64_t block = column / kBlockColumns, within = column % kBlockColumns;
      const int64_t stored = kIsInt8 ? within : within % 16;
      const uint8_t byte = bytes[block * kBlockBytes + (stored / 4 * kTileRows + row) * 4 + stored % 4];
      const int value = kIsInt8 ? byte - 128 : (within < 16 ? byte & 15 : byte >> 4) - (kIsAsym ? 0 : 8);
      out[column] = half_to_float(scales[block * kTileRows]) * static_cast<float>(value);
      if constexpr (kIsAsym) out[column] += half_to_float(scales[(2 + block) * kTileRows]);
    }
  }
}

template <WeightFormat kFormat>
void unpack(const std::byte* packed, int64_t num_columns, int64_t row, float scale, float* out) {
  const std::byte* group = packed + static_cast<size_t>(row / kTileRows) * tile_bytes(kFormat, num_columns);
  for (int64_t column = 0; column < num_columns; column += kGroupColumns) {
    float values[kGroupColumns];
    unpack_group<kFormat>(group, row % kTileRows, values);
    const int64_t count = std::min(kGroupColumns, num_columns - column);
    for (int64_t i = 0; i < count; ++i) out[column + i] = values[i] * scale;
    group += group_bytes(kFormat);
  }
}

}  // namespace

void unpack_row(WeightFormat format, const std::byte* packed, int64_t num_columns, int64_t row, float scale,
                float* out) {
  switch (format) {
    case WeightFormat::kInt4:
      return unpack<WeightFormat::kInt4>(packed, num_columns, row, scale, out);
    case WeightFormat::kInt4Asym:
      return unpack<WeightFormat::kInt4Asym>(packed, num_columns, row, scale, out);
    case WeightFormat::kInt8:
      return unpack<WeightFormat::kInt8>(packed, num_columns, row, scale, out);
    case WeightFormat::kF16:
      return unpack<WeightFormat::kF16>(packed, num_columns, row, scale, out);
    case WeightFormat::kF32:
      return unpack<WeightFormat::kF32>(packed, num_columns, row, scale, out);
  }
}

}  // namespace pilotfish
