// Rows of f32 in the memory of whatever runs the models: the host's, or that of a CUDA device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/pages.h"
#include "device/cuda_device.h"

namespace pilotfish {

class FloatRows {
 public:
  // Zeros, [num_parts, max_rows, num_columns]. `device` is nullptr on the CPU.
  FloatRows(std::shared_ptr<CudaDevice> device, int32_t max_rows, int32_t num_columns, int32_t num_parts = 1);

  static uint64_t num_bytes(uint64_t max_rows, uint64_t num_columns) noexcept {
    return sizeof(float) * max_rows * num_columns;
  }

  int32_t max_rows() const noexcept { return max_rows_; }
  int32_t num_columns() const noexcept { return num_columns_; }
  // [num_columns], not to be read by the host where it is a device's.
  float* row(int32_t index, int32_t part = 0) const noexcept {
    return data_ + (size_t(part) * max_rows_ + index) * num_columns_;
  }

  // Row first + i of each part becomes row rows[i] of the same part of `source`, which is as wide and on the same
  // device, or is this one where no row is both read and written. At most kMaxRoundRows of them. Does not wait for a
  // device.
  void take(int32_t first, const FloatRows& source, std::span<const int32_t> rows);
  // The same of neighbours.
  void take(int32_t first, const FloatRows& source, int32_t from, int32_t num_rows);
  // The same of rows whose numbers the device has.
  void take(const FloatRows& source, const int32_t* device_rows, int32_t num_rows);
  // Rows `first` and on of the first part. Waits for the device.
  void read(int32_t first, int32_t num_rows, float* out) const;

 private:
  void gather(int32_t first, const FloatRows& source, std::span<const int32_t> rows, const int32_t* device_rows,
              int32_t num_rows);

  std::shared_ptr<CudaDevice> device_;
  int32_t max_rows_;
  int32_t num_columns_;
  int32_t num_parts_;
  std::optional<Pages> pages_;
  std::optional<CudaMemory> device_memory_;
  float* data_;
};

}  // namespace pilotfish
