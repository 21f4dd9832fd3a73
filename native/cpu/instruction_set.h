// Which kernels run on this processor.
#pragma once

namespace pilotfish {

enum class InstructionSet { kPortable, kAvx2, kAvx512, kNeon, kDotprod, kI8mm };

// The best set of this processor (avx2 includes FMA and F16C, avx512 includes VNNI; on Arm each of neon, dotprod and
// i8mm includes those before it).
InstructionSet best_instruction_set();

// The set that runs: the best one, unless the environment variable PILOTFISH_CPU, read at the first call, selects a
// lower one by its name. Throws std::invalid_argument if it names anything else or a set that the processor lacks.
InstructionSet instruction_set();

// Whether this processor has the instructions of `set`.
bool runs_here(InstructionSet set);

// "avx512vnni", "avx2", "i8mm", "dotprod", "neon" or "portable"; static.
const char* instruction_set_name(InstructionSet set) noexcept;

}  // namespace pilotfish
