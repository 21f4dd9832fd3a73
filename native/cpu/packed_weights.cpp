#include "packed_weights.h"

#include <stdexcept>
#include <string>

namespace pilotfish {

WeightFormat parse_weight_format(std::string_view name) {
  if (name == "int4") return WeightFormat::kInt4;
  if (name == "int4_asym") return WeightFormat::kInt4Asym;
  if (name == "int8") return WeightFormat::kInt8;
  if (name == "f16") return WeightFormat::kF16;
  if (name == "f32") return WeightFormat::kF32;
  throw std::invalid_argument("format is '" + std::string(name) + "', not one of int4, int4_asym, int8, f16, f32");
}

}  // namespace pilotfish
