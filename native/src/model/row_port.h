// An input or output of a graph that has as many rows as the pass wants, bound to memory that has room for the most.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "memory/float_rows.h"
#include "model/session.h"

namespace pilotfish {

class RowPort {
 public:
  using Kind = PortKind;
  struct Rows {
    ONNXTensorElementDataType type;
    void* data;           // where the session runs
    int32_t num_columns;  // 0: a number a row
    int32_t max_rows;
    bool has_open_width = false;  // the graph takes any number of columns

    static Rows of(const FloatRows& rows, int32_t part = 0) noexcept {
      return {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, rows.row(0, part), rows.num_columns(), rows.max_rows()};
    }
  };

  // The session and the memory must outlive it. Throws PF_BUNDLE_CORRUPT unless the graph has such a port.
  RowPort(Session& session, std::string name, Kind kind, const Rows& rows);

  // To rows [first, first + num_rows).
  void bind(int32_t num_rows, int32_t first = 0);

 private:
  OrtValuePtr tensor(int32_t num_rows, int32_t first) const;

  Session* session_;
  std::string name_;
  Kind kind_;
  Rows rows_;
  std::vector<OrtValuePtr> tensors_;  // [max_rows + 1] by the number of rows, made when first used
  std::map<std::pair<int32_t, int32_t>, OrtValuePtr> later_;  // the same by the first row, other than 0, and the number
  int32_t num_bound_ = -1;
  int32_t first_bound_ = 0;
};

}  // namespace pilotfish
