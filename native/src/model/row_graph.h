// A graph of a head whose inputs and outputs have as many rows as tokens go through it, bound to buffers of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/pages.h"
#include "model/head.h"
#include "model/ort.h"

namespace pilotfish {

class RowGraph {
 public:
  enum class Type { kInt32, kFloat };
  struct Port {
    std::string name;
    Type type;
    int32_t num_columns;  // 0: a number a row
  };

  // A graph that is not what the ports say fails here: one row is run through it.
  RowGraph(const Head& head, std::string_view role, const std::vector<Port>& inputs, const std::vector<Port>& outputs,
           int32_t max_rows);
  RowGraph(RowGraph&&) = default;

  static uint64_t num_bytes(uint64_t num_columns, uint64_t max_rows) noexcept {
    return sizeof(float) * num_columns * max_rows;
  }

  // Row-major, [max_rows, num_columns]; of the port's type.
  std::span<int32_t> ids(size_t input) const noexcept;
  std::span<float> input(size_t input) const noexcept;
  std::span<const float> output_row(size_t output, int32_t row) const noexcept;
  // Runs the first num_rows rows of the inputs.
  void run(int32_t num_rows);

 private:
  struct Buffer {
    Port port;
    Pages data;
    std::vector<OrtValuePtr> tensors;  // [max_rows + 1] by the number of rows, made when first used
  };

  Buffer buffer(const Port& port) const;
  const OrtValue* tensor(Buffer& buffer, int32_t num_rows);
  void bind(int32_t num_rows);

  const Ort* ort_;
  int32_t max_rows_;
  OrtSessionPtr session_;
  OrtIoBindingPtr binding_;
  std::vector<Buffer> inputs_, outputs_;
  int32_t num_bound_ = 0;
};

}  // namespace pilotfish
