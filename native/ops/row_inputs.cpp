#include "row_inputs.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pilotfish {
namespace {

constexpr int64_t kMaxParts = 1 << 10;
constexpr const char* kJoinNames[kMostJoined] = {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"};

NormKind parse_norm(const std::string& name) {
  if (name == "none") return NormKind::kNone;
  if (name == "rms") return NormKind::kRms;
  if (name == "layer") return NormKind::kLayer;
  throw std::invalid_argument("norm is '" + name + "', not one of none, rms, layer");
}

RowActivation parse_row_activation(const std::string& name) {
  if (name == "none") return RowActivation::kNone;
  if (name == "silu") return RowActivation::kSilu;
  if (name == "gelu") return RowActivation::kGelu;
  throw std::invalid_argument("activation is '" + name + "', not one of none, silu, gelu");
}

}  // namespace

void check_gather_rows(const Tensor& x, const Tensor& rows) {
  require_shape("x", x, {-1, -1});
  require_shape("rows", rows, {-1});
}

JoinAxis join_axis(const KernelInfo& node) {
  return node.integer("axis", 0, 1) == 0 ? JoinAxis::kRows : JoinAxis::kColumns;
}

JoinedShape check_join(JoinAxis axis, std::span<const Tensor> parts) {
  JoinedShape shape{0, 0};
  for (size_t index = 0; index < parts.size(); ++index) {
    const Tensor& part = parts[index];
    if (!part.exists()) continue;
    const char* const name = kJoinNames[index];
    require_shape(name, part, {-1, -1});
    const Tensor& first = parts[0];
    const size_t same = axis == JoinAxis::kRows ? 1 : 0;
    require(part.dims[same] == first.dims[same], name, " has shape ", part, ", which does not fit x0, ", first);
    shape.num_rows = axis == JoinAxis::kRows ? shape.num_rows + part.dims[0] : part.dims[0];
    shape.num_columns = axis == JoinAxis::kRows ? part.dims[1] : shape.num_columns + part.dims[1];
  }
  return shape;
}

RowsPart rows_part(const KernelInfo& node) {
  const int64_t num_parts = node.integer("num_parts", 1, kMaxParts);
  return {node.integer("part", 0, num_parts - 1), num_parts};
}

int64_t check_rows_part(const RowsPart& settings, const Tensor& x) {
  require_shape("x", x, {-1, -1});
  require(x.dims[0] % settings.num_parts == 0, "x has shape ", x, ", whose rows are no ", settings.num_parts,
          " equal parts");
  return x.dims[0] / settings.num_parts;
}

NormSettings norm_settings(const KernelInfo& node) {
  const NormSettings settings{.norm = parse_norm(node.text("norm")),
                              .activation = parse_row_activation(node.text("activation")),
                              .epsilon = node.real("norm_epsilon")};
  require(settings.epsilon >= 0, "norm_epsilon is ", settings.epsilon, ", not at least 0");
  return settings;
}

NormInputs check_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
  require(x.rank >= 1 && x.dims[x.rank - 1] >= 1, "x has shape ", x, ": rows without columns");
  const int64_t num_columns = x.dims[x.rank - 1];
  if (weight.exists()) require_shape("weight", weight, {num_columns});
  if (bias.exists()) require_shape("bias", bias, {num_columns});
  if (residual.exists()) {
    const bool is_like_x = std::equal(x.dims.begin(), x.dims.begin() + x.rank, residual.dims.begin(),
                                      residual.dims.begin() + residual.rank);
    require(is_like_x, "residual has shape ", residual, ", not that of x, ", x);
  }
  return {x, weight, bias, residual, x.count() / num_columns, num_columns};
}

}  // namespace pilotfish
