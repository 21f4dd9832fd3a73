#include "memory/float_rows.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>

namespace pilotfish {

FloatRows::FloatRows(std::shared_ptr<CudaDevice> device, int32_t max_rows, int32_t num_columns, int32_t num_parts)
    : device_(std::move(device)), max_rows_(max_rows), num_columns_(num_columns), num_parts_(num_parts) {
  const size_t size = num_parts * num_bytes(max_rows, num_columns);
  if (device_) {
    data_ = reinterpret_cast<float*>(device_memory_.emplace(device_, size).data());
    device_->fill(data_, 0, size, size, 1);
  } else {
    data_ = reinterpret_cast<float*>(pages_.emplace(size, Pages::Size::kSmall).data());
  }
}

void FloatRows::take(int32_t first, const FloatRows& source, std::span<const int32_t> rows) {
  assert(source.num_columns_ == num_columns_ && source.num_parts_ == num_parts_);
  assert(first + static_cast<int32_t>(rows.size()) <= max_rows_);
  if (rows.empty()) return;
  if (device_) return gather(first, source, rows, nullptr, static_cast<int32_t>(rows.size()));
  for (int32_t part = 0; part < num_parts_; ++part) {
    float* out = row(first, part);
    for (const int32_t index : rows) out = std::copy_n(source.row(index, part), num_columns_, out);
  }
}

void FloatRows::take(int32_t first, const FloatRows& source, int32_t from, int32_t num_rows) {
  std::array<int32_t, kMaxRoundRows> rows;
  std::iota(rows.begin(), rows.begin() + num_rows, from);
  take(first, source, {rows.data(), size_t(num_rows)});
}

void FloatRows::take(const FloatRows& source, const int32_t* device_rows, int32_t num_rows) {
  gather(0, source, {}, device_rows, num_rows);
}

void FloatRows::gather(int32_t first, const FloatRows& source, std::span<const int32_t> rows,
                       const int32_t* device_rows, int32_t num_rows) {
  RowGather gather{.target = row(first),
                   .source = source.data_,
                   .target_stride = size_t(max_rows_) * num_columns_,
                   .source_stride = size_t(source.max_rows_) * num_columns_,
                   .num_parts = num_parts_,
                   .num_columns = num_columns_,
                   .num_rows = num_rows,
                   .device_rows = device_rows,
                   .rows = {}};
  std::copy(rows.begin(), rows.end(), gather.rows);
  device_->gather_rows(gather);
}

void FloatRows::read(int32_t first, int32_t num_rows, float* out) const {
  if (!device_) {
    std::copy_n(row(first), size_t(num_rows) * num_columns_, out);
    return;
  }
  device_->download(out, row(first), num_bytes(num_rows, num_columns_));
  device_->synchronize();
}

}  // namespace pilotfish
