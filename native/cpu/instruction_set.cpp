#include "instruction_set.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>

#include "base/platform/processor.h"
#include "base/x86_features.h"

namespace pilotfish {

InstructionSet best_instruction_set() {
#if defined(__aarch64__)
  const platform::ArmFeatures arm = platform::arm_features();
  if (arm.dotprod && arm.i8mm) return InstructionSet::kI8mm;
  return arm.dotprod ? InstructionSet::kDotprod : InstructionSet::kNeon;
#else
  if (x86_features().avx512_vnni) return InstructionSet::kAvx512;
  if (x86_features().avx2) return InstructionSet::kAvx2;
  return InstructionSet::kPortable;
#endif
}

namespace {

// Those that are compiled in, each with the instructions of all before it.
#if defined(__x86_64__)
constexpr InstructionSet kSets[] = {InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512};
#elif defined(__aarch64__)
constexpr InstructionSet kSets[] = {InstructionSet::kPortable, InstructionSet::kNeon, InstructionSet::kDotprod,
                                    InstructionSet::kI8mm};
#else
constexpr InstructionSet kSets[] = {InstructionSet::kPortable};
#endif

InstructionSet select_instruction_set() {
  const char* wanted = std::getenv("PILOTFISH_CPU");
  if (wanted == nullptr) return best_instruction_set();
  std::string runnable;
  for (const InstructionSet set : kSets) {
    if (!runs_here(set)) continue;
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

bool runs_here(InstructionSet set) {
  return set <= best_instruction_set() && std::find(std::begin(kSets), std::end(kSets), set) != std::end(kSets);
}

const char* instruction_set_name(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::kAvx512:
      return "avx512vnni";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kI8mm:
      return "i8mm";
    case InstructionSet::kDotprod:
      return "dotprod";
    case InstructionSet::kNeon:
      return "neon";
    case InstructionSet::kPortable:
      break;
  }
  return "portable";
}

}  // namespace pilotfish
