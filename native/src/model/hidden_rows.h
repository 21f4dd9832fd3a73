// The residual streams that a target gives out for a head: buffers that its session is bound to, on the CPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/pages.h"
#include "model/ort.h"

namespace pilotfish {

// Streams of the asked rows of a pass, valid until the model's next pass.
struct Hidden {
  const float* data;  // [num_taps, max_rows, width], of which num_rows rows a tap are in use
  int32_t max_rows;
  int32_t num_rows;
  int32_t width;

  // `tap` counts those of the manifest.
  std::span<const float> row(size_t tap, int32_t index) const {
    return {data + (tap * max_rows + index) * width, size_t(width)};
  }
};

// Of the target's output, and of the head's input.
inline std::string stream_name(int32_t tap) { return "aux_hidden." + std::to_string(tap); }

class HiddenRows {
 public:
  // Passes ask for max_rows rows at most. `binding` must outlive it.
  HiddenRows(const Ort& ort, OrtIoBinding* binding, std::span<const int32_t> taps, int32_t width, int32_t max_rows);

  static uint64_t num_bytes(uint64_t num_taps, uint64_t width, uint64_t max_rows) noexcept {
    return (num_taps * width * sizeof(float) + sizeof(int32_t)) * max_rows;
  }

  // The next pass gives the streams of the last num_hidden of its num_rows rows.
  void ask(int32_t num_rows, int32_t num_hidden);
  Hidden view() const noexcept;

 private:
  struct Tensors {
    OrtValuePtr rows;
    std::vector<OrtValuePtr> streams;  // [num_taps]
  };

  const Tensors& tensors(int32_t num_hidden);

  const Ort& ort_;
  OrtIoBinding* const binding_;
  std::vector<std::string> names_;  // of the outputs
  const int32_t width_;
  const int32_t max_rows_;
  Pages streams_;                 // f32 [num_taps, max_rows, width]
  std::vector<int32_t> rows_;     // [max_rows]
  std::vector<Tensors> tensors_;  // [max_rows + 1] by the number of rows, made when first asked for
  int32_t num_bound_ = -1;
};

}  // namespace pilotfish
