// The operator NormActivation of GRAPH.md.
#include <memory>

#include "norm_activation.h"
#include "operator.h"
#include "operators.h"
#include "row_inputs.h"

namespace pilotfish {
namespace {

class NormActivationOp {
 public:
  static constexpr const char* kName = "NormActivation";
  static constexpr auto kInputs = kNormInputs;

  explicit NormActivationOp(const KernelInfo& info) : settings_(norm_settings(info)) {}
  void compute(const KernelContext& context) const {
    const auto [x, weight, bias, residual] = inputs_of(context, kInputs);
    const NormInputs inputs = check_norm(x, weight, bias, residual);
    float* const out = context.output_like(0, x);
    const RowNorm norm{settings_, inputs.num_columns, weight.as<const float>(), bias.as<const float>()};
    const auto source = x.as<const float>(), added = residual.as<const float>();
    context.parallel().run(inputs.num_rows, [&](int64_t row) {
      const int64_t first = row * inputs.num_columns;
      norm_activation(norm, source + first, added == nullptr ? nullptr : added + first, out + first);
    });
  }

 private:
  NormSettings settings_;
};

}  // namespace

OperatorPtr norm_activation_op(int32_t num_threads) {
  return std::make_shared<Operator<NormActivationOp>>(num_threads);
}

}  // namespace pilotfish
