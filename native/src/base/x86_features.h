// What an x86-64 processor has, asked from the processor itself (cpuid, xgetbv) and of its operating system, which must
// save the wide registers. Compilers' own tests depend on their runtime libraries, some of which always say no.
#pragma once

namespace pilotfish {

struct X86Features {
  bool sha = false;          // SHA-256, with SSE4.1 and SSSE3
  bool avx2 = false;         // with FMA, F16C and POPCNT
  bool avx512 = false;       // F, with avx2
  bool avx512_vnni = false;  // with BW, DQ and VL
};

// All false on other processors.
const X86Features& x86_features() noexcept;

}  // namespace pilotfish
