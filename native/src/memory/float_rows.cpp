#include "memory/float_rows.h"

#include <algorithm>
#include <cassert>

namespace pilotfish {

FloatRows::FloatRows(std::shared_ptr<CudaDevice> device, int32_t max_rows, int32_t num_columns)
    : device_(std::move(device)), max_rows_(max_rows), num_columns_(num_columns) {
  const size_t size = num_bytes(max_rows, num_columns);
  if (device_) {
    data_ = reinterpret_cast<float*>(device_memory_.emplace(device_, size).data());
    device_->fill(data_, 0, size, size, 1);
  } else {
    data_ = reinterpret_cast<float*>(pages_.emplace(size, Pages::Size::kSmall).data());
  }
}

void FloatRows::take(int32_t first, const FloatRows& source, std::span<const int32_t> rows) {
  assert(source.num_columns_ == num_columns_ && first + static_cast<int32_t>(rows.size()) <= max_rows_);
  if (!device_) {
    for (const int32_t index : rows) std::copy_n(source.row(index), num_columns_, row(first++));
    return;
  }
  RowGather gather{.target = row(first),
                   .source = source.data_,
                   .num_columns = num_columns_,
                   .num_rows = static_cast<int32_t>(rows.size()),
                   .device_rows = nullptr,
                   .rows = {}};
  std::copy(rows.begin(), rows.end(), gather.rows);
  device_->gather_rows(gather);
}

void FloatRows::take(const FloatRows& source, const int32_t* device_rows, int32_t num_rows) {
  device_->gather_rows({.target = data_,
                        .source = source.data_,
                        .num_columns = num_columns_,
                        .num_rows = num_rows,
                        .device_rows = device_rows,
                        .rows = {}});
}

void FloatRows::take(int32_t first, const FloatRows& source, int32_t from, int32_t num_rows) {
  assert(source.num_columns_ == num_columns_ && first + num_rows <= max_rows_);
  if (num_rows == 0) return;
  if (!device_) {
    std::copy_n(source.row(from), size_t(num_rows) * num_columns_, row(first));
    return;
  }
  const size_t size = num_bytes(num_rows, num_columns_);
  device_->copy(row(first), source.row(from), size, size, 1);
}

void FloatRows::read(int32_t num_rows, float* out) const {
  if (!device_) {
    std::copy_n(data_, size_t(num_rows) * num_columns_, out);
    return;
  }
  device_->download(out, data_, num_bytes(num_rows, num_columns_));
  device_->synchronize();
}

}  // namespace pilotfish
