#include "instruction_set.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace pilotfish {
namespace {

InstructionSet best_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni");
  if (has_avx2 && has_avx512) return InstructionSet::kAvx512;
  if (has_avx2) return InstructionSet::kAvx2;
#endif
  return InstructionSet::kPortable;
}

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
