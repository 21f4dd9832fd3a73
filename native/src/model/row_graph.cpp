#include "model/row_graph.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace pilotfish {

RowGraph::RowGraph(const Head& head, std::string_view role, const std::vector<Port>& inputs,
                   const std::vector<Port>& outputs, int32_t max_rows)
    : ort_(&head.ort()),
      max_rows_(max_rows),
      session_(head.open_session(role)),
      binding_(ort_->create_binding(session_.get())) {
  for (const Port& port : inputs) inputs_.push_back(buffer(port));
  for (const Port& port : outputs) outputs_.push_back(buffer(port));
  run(1);
}

RowGraph::Buffer RowGraph::buffer(const Port& port) const {
  const size_t num_columns = std::max(port.num_columns, 1);
  Buffer made{.port = port, .data = Pages(num_bytes(num_columns, max_rows_), Pages::Size::kSmall), .tensors = {}};
  made.tensors.resize(max_rows_ + 1);
  return made;
}

const OrtValue* RowGraph::tensor(Buffer& buffer, int32_t num_rows) {
  OrtValuePtr& made = buffer.tensors[num_rows];
  if (made) return made.get();
  const std::array<int64_t, 2> shape{num_rows, buffer.port.num_columns};
  const bool is_vector = buffer.port.num_columns == 0;
  const size_t bytes = num_bytes(is_vector ? 1 : buffer.port.num_columns, num_rows);
  made = ort_->tensor(
      buffer.data.data(), bytes, std::span(shape).first(is_vector ? 1 : 2),
      buffer.port.type == Type::kInt32 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  return made.get();
}

std::span<int32_t> RowGraph::ids(size_t input) const noexcept {
  return {reinterpret_cast<int32_t*>(inputs_[input].data.data()), size_t(max_rows_)};
}

std::span<float> RowGraph::input(size_t input) const noexcept {
  const Buffer& buffer = inputs_[input];
  return {reinterpret_cast<float*>(buffer.data.data()), size_t(max_rows_) * buffer.port.num_columns};
}

std::span<const float> RowGraph::output_row(size_t output, int32_t row) const noexcept {
  const Buffer& buffer = outputs_[output];
  const auto width = size_t(buffer.port.num_columns);
  return {reinterpret_cast<const float*>(buffer.data.data()) + row * width, width};
}

void RowGraph::bind(int32_t num_rows) {
  if (num_rows == num_bound_) return;
  num_bound_ = 0;
  for (Buffer& buffer : inputs_) {
    ort_->check(ort_abi::BindInput(ort_->api(), binding_.get(), buffer.port.name.c_str(), tensor(buffer, num_rows)));
  }
  for (Buffer& buffer : outputs_) {
    ort_->check(ort_abi::BindOutput(ort_->api(), binding_.get(), buffer.port.name.c_str(), tensor(buffer, num_rows)));
  }
  num_bound_ = num_rows;
}

void RowGraph::run(int32_t num_rows) {
  assert(num_rows >= 1 && num_rows <= max_rows_);
  bind(num_rows);
  ort_->check(ort_abi::RunWithBinding(ort_->api(), session_.get(), nullptr, binding_.get()));
}

}  // namespace pilotfish
