#include "model/hidden_rows.h"

#include <array>
#include <numeric>

namespace pilotfish {

HiddenRows::HiddenRows(const Ort& ort, OrtIoBinding* binding, std::span<const int32_t> taps, int32_t width,
                       int32_t max_rows)
    : ort_(ort),
      binding_(binding),
      width_(width),
      max_rows_(max_rows),
      streams_(sizeof(float) * taps.size() * max_rows * width, Pages::Size::kSmall),
      rows_(max_rows),
      tensors_(max_rows + 1) {
  for (const int32_t tap : taps) names_.push_back(stream_name(tap));
}

const HiddenRows::Tensors& HiddenRows::tensors(int32_t num_hidden) {
  Tensors& found = tensors_[num_hidden];
  if (found.rows) return found;
  const std::array<int64_t, 1> count{num_hidden};
  const std::array<int64_t, 2> shape{num_hidden, width_};
  const size_t tap_bytes = sizeof(float) * max_rows_ * width_;
  for (size_t tap = 0; tap < names_.size(); ++tap) {
    found.streams.push_back(ort_.tensor(streams_.data() + tap * tap_bytes, sizeof(float) * num_hidden * width_, shape,
                                        ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
  }
  found.rows = ort_.tensor(rows_.data(), sizeof(int32_t) * num_hidden, count, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32);
  return found;
}

void HiddenRows::ask(int32_t num_rows, int32_t num_hidden) {
  std::iota(rows_.begin(), rows_.begin() + num_hidden, num_rows - num_hidden);
  if (num_hidden == num_bound_) return;
  const Tensors& bound = tensors(num_hidden);
  num_bound_ = -1;
  ort_.check(ort_abi::BindInput(ort_.api(), binding_, "hidden_rows", bound.rows.get()));
  for (size_t tap = 0; tap < names_.size(); ++tap) {
    ort_.check(ort_abi::BindOutput(ort_.api(), binding_, names_[tap].c_str(), bound.streams[tap].get()));
  }
  num_bound_ = num_hidden;
}

Hidden HiddenRows::view() const noexcept {
  return {.data = reinterpret_cast<const float*>(streams_.data()),
          .max_rows = max_rows_,
          .num_rows = num_bound_,
          .width = width_};
}

}  // namespace pilotfish
