// The operator Join of GRAPH.md.
#include <algorithm>
#include <memory>

#include "operator.h"
#include "operators.h"
#include "row_inputs.h"

namespace pilotfish {
namespace {

class JoinOp {
 public:
  static constexpr const char* kName = "Join";
  static constexpr auto kInputs = kJoinInputs;

  explicit JoinOp(const KernelInfo& info) : axis_(join_axis(info)) {}
  void compute(const KernelContext& context) const {
    const auto parts = inputs_of(context, kInputs);
    const JoinedShape shape = check_join(axis_, parts);
    float* const out = context.output(0, {shape.num_rows, shape.num_columns});
    // Parts below each other are the columns of one long row.
    const int64_t num_rows = axis_ == JoinAxis::kRows ? 1 : shape.num_rows;
    const int64_t width = axis_ == JoinAxis::kRows ? shape.num_rows * shape.num_columns : shape.num_columns;
    int64_t column = 0;
    for (const Tensor& part : parts) {
      if (!part.exists()) continue;
      const int64_t num_columns = axis_ == JoinAxis::kRows ? part.count() : part.dims[1];
      const auto source = part.as<const float>();
      for (int64_t row = 0; row < num_rows; ++row) {
        std::copy_n(source + row * num_columns, num_columns, out + row * width + column);
      }
      column += num_columns;
    }
  }

 private:
  JoinAxis axis_;
};

}  // namespace

OperatorPtr join_op(int32_t num_threads) { return std::make_shared<Operator<JoinOp>>(num_threads); }

}  // namespace pilotfish
