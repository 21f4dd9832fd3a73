#include "model/hidden_rows.h"

namespace pilotfish {

HiddenRows::HiddenRows(Session& session, std::span<const int32_t> taps, int32_t width, int32_t max_rows, void* rows)
    : rows_(session, "hidden_rows", RowPort::Kind::kInput, {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, rows, 0, max_rows}),
      streams_(session.device(), max_rows, width, static_cast<int32_t>(taps.size())) {
  for (size_t i = 0; i < taps.size(); ++i) {
    outputs_.emplace_back(session, stream_name(taps[i]), RowPort::Kind::kOutput,
                          RowPort::Rows::of(streams_, static_cast<int32_t>(i)));
  }
}

void HiddenRows::bind(int32_t num_hidden) {
  rows_.bind(num_hidden);
  for (RowPort& output : outputs_) output.bind(num_hidden);
  num_bound_ = num_hidden;
}

}  // namespace pilotfish
