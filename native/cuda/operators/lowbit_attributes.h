// The weight of a node, as its attributes describe it.
#pragma once

#include <string>

#include "cuda_operator.h"
#include "kernels.h"

namespace pilotfish::cuda {

inline WeightFormat parse_weight_format(const std::string& name) {
  if (name == "int4") return WeightFormat::kInt4;
  if (name == "int4_asym") return WeightFormat::kInt4Asym;
  if (name == "int8") return WeightFormat::kInt8;
  if (name == "f16") return WeightFormat::kF16;
  throw std::invalid_argument("format is '" + name +
                              "'; the CUDA kernels have int4, int4_asym, int8 and f16: export with one of these");
}

inline LowbitShape lowbit_shape(const NodeInfo& node, const char* columns, const char* rows) {
  constexpr int64_t kMost = int64_t{1} << 24;
  return {parse_weight_format(node.text("format")), static_cast<int>(node.integer(columns, 1, kMost)),
          static_cast<int>(node.integer(rows, 1, kMost))};
}

}  // namespace pilotfish::cuda
