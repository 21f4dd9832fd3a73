#include "model/row_port.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace pilotfish {

RowPort::RowPort(Session& session, std::string name, Kind kind, const Rows& rows)
    : session_(&session), name_(std::move(name)), kind_(kind), rows_(rows), tensors_(size_t(rows.max_rows) + 1) {
  const std::array<int64_t, 2> shape{GraphPorts::kOpen, rows.has_open_width ? GraphPorts::kOpen : rows.num_columns};
  session.ports().require(kind, name_, rows.type, std::span(shape).first(rows.num_columns == 0 ? 1 : 2));
}

OrtValuePtr RowPort::tensor(int32_t num_rows, int32_t first) const {
  const size_t element_bytes = rows_.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64 ? 8 : 4;
  const size_t row_bytes = element_bytes * std::max(rows_.num_columns, 1);
  const std::array<int64_t, 2> shape{num_rows, rows_.num_columns};
  return session_->tensor(static_cast<std::byte*>(rows_.data) + first * row_bytes, num_rows * row_bytes,
                          std::span(shape).first(rows_.num_columns == 0 ? 1 : 2), rows_.type);
}

void RowPort::bind(int32_t num_rows, int32_t first) {
  if (num_rows == num_bound_ && first == first_bound_) return;
  assert(first + num_rows <= rows_.max_rows);
  OrtValuePtr& bound = first == 0 ? tensors_[num_rows] : later_[{first, num_rows}];
  if (!bound) bound = tensor(num_rows, first);
  num_bound_ = -1;
  const Ort& ort = session_->ort();
  ort.check(kind_ == Kind::kInput ? ort_abi::BindInput(ort.api(), session_->binding(), name_.c_str(), bound.get())
                                  : ort_abi::BindOutput(ort.api(), session_->binding(), name_.c_str(), bound.get()));
  num_bound_ = num_rows;
  first_bound_ = first;
}

}  // namespace pilotfish
