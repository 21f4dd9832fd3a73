// A function of this mark is compiled for each width of vectors, and the widest that the processor has is the one that
// runs; what it calls must be inlined into it. Arithmetic is not contracted (CMakeLists.txt), so that all give the same
// bits.
#pragma once

// Sanitizers are not yet there when the loader asks which clone to take.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define PF_ALL_WIDTHS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PF_ALL_WIDTHS
#endif
#define PF_INLINE __attribute__((always_inline)) inline
