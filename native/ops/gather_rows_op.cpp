// The operator GatherRows of GRAPH.md.
#include <algorithm>
#include <memory>

#include "operator.h"
#include "operators.h"
#include "row_inputs.h"

namespace pilotfish {
namespace {

class GatherRowsOp {
 public:
  static constexpr const char* kName = "GatherRows";
  static constexpr auto kInputs = kGatherRowsInputs;

  explicit GatherRowsOp(const KernelInfo&) {}
  void compute(const KernelContext& context) const {
    const auto [x, rows] = inputs_of(context, kInputs);
    check_gather_rows(x, rows);
    const int64_t num_rows = rows.dims[0], num_columns = x.dims[1];
    const auto row = rows.as<const int32_t>();
    for (int64_t i = 0; i < num_rows; ++i) {
      require(row[i] >= 0 && row[i] < x.dims[0], Element{"rows", i, row[i]}, ", not in 0..", x.dims[0] - 1);
    }
    float* const out = context.output(0, {num_rows, num_columns});
    const auto source = x.as<const float>();
    for (int64_t i = 0; i < num_rows; ++i)
      std::copy_n(source + row[i] * num_columns, num_columns, out + i * num_columns);
  }
};

}  // namespace

OperatorPtr gather_rows_op(int32_t num_threads) { return std::make_shared<Operator<GatherRowsOp>>(num_threads); }

}  // namespace pilotfish
