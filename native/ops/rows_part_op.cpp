// The operator RowsPart of GRAPH.md.
#include <algorithm>
#include <memory>

#include "operator.h"
#include "operators.h"
#include "row_inputs.h"

namespace pilotfish {
namespace {

class RowsPartOp {
 public:
  static constexpr const char* kName = "RowsPart";
  static constexpr auto kInputs = kRowsPartInputs;

  explicit RowsPartOp(const KernelInfo& info) : settings_(rows_part(info)) {}
  void compute(const KernelContext& context) const {
    const Tensor x = context.input(0);
    const int64_t num_rows = check_rows_part(settings_, x), count = num_rows * x.dims[1];
    std::copy_n(x.as<const float>() + settings_.part * count, count, context.output(0, {num_rows, x.dims[1]}));
  }

 private:
  RowsPart settings_;
};

}  // namespace

OperatorPtr rows_part_op(int32_t num_threads) { return std::make_shared<Operator<RowsPartOp>>(num_threads); }

}  // namespace pilotfish
