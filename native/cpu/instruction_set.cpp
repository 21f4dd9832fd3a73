#include "instruction_set.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "base/x86_features.h"

namespace pilotfish {

InstructionSet best_instruction_set() {
  if (x86_features().avx512_vnni) return InstructionSet::kAvx512;
  if (x86_features().avx2) return InstructionSet::kAvx2;
  return InstructionSet::kPortable;
}

namespace {

InstructionSet select_instruction_set() {
  const InstructionSet best = best_instruction_set();
  const char* wanted = std::getenv("PILOTFISH_CPU");
  if (wanted == nullptr) return best;
  std::string runnable;
  for (const auto set : {InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (set > best) continue;
    if (std::string(wanted) == instruction_set_name(set)) return set;
    runnable += std::string(runnable.empty() ? "" : ", ") + instruction_set_name(set);
  }
  throw std::invalid_argument(std::string("PILOTFISH_CPU=") + wanted + ": this processor runs " + runnable);
}

}  // namespace

InstructionSet instruction_set() {
  static const InstructionSet selected = select_instruction_set();
  return selected;
}

const char* instruction_set_name(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::kAvx512:
      return "avx512vnni";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kPortable:
      break;
  }
  return "portable";
}

}  // namespace pilotfish
