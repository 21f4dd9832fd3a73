// Which kernels run on this processor.
#pragma once

namespace pilotfish {

enum class InstructionSet { kPortable, kAvx2, kAvx512 };

// The best set of this processor (avx2 includes FMA and F16C, avx512 includes VNNI).
InstructionSet best_instruction_set();

// The set that runs: the best one, unless the environment variable PILOTFISH_CPU (avx512vnni, avx2 or portable), read
// at the first call, selects a lower one. Throws std::invalid_argument if it names anything else or a set that the
// processor lacks.
InstructionSet instruction_set();

// "avx512vnni", "avx2" or "portable"; static.
const char* instruction_set_name(InstructionSet set) noexcept;

}  // namespace pilotfish
