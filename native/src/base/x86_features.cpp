#include "base/x86_features.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>
#include <initializer_list>
#endif

namespace pilotfish {
namespace {

#if defined(__x86_64__)
struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;

  explicit CpuidLeaf(uint32_t leaf) { __get_cpuid_count(leaf, 0, &eax, &ebx, &ecx, &edx); }  // zeros where it has none
};

constexpr bool has(uint32_t bits, std::initializer_list<int> wanted) {
  for (const int bit : wanted) {
    if ((bits >> bit & 1) == 0) return false;
  }
  return true;
}

// Which registers the operating system saves (XCR0): bits 1 and 2 are those of AVX, 5 to 7 what AVX-512 adds.
uint32_t saved_registers() {
  uint32_t eax, edx;
  __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
}

X86Features detect() {
  const CpuidLeaf first(1), seventh(7);
  const uint32_t saved = has(first.ecx, {27}) ? saved_registers() : 0;
  X86Features found;
  found.sha = has(first.ecx, {9, 19}) && has(seventh.ebx, {29});
  // FMA, POPCNT, AVX and F16C; then AVX2.
  found.avx2 = has(saved, {1, 2}) && has(first.ecx, {12, 23, 28, 29}) && has(seventh.ebx, {5});
  found.avx512 = found.avx2 && has(saved, {5, 6, 7}) && has(seventh.ebx, {16});
  found.avx512_vnni = found.avx512 && has(seventh.ebx, {17, 30, 31}) && has(seventh.ecx, {11});  // DQ, BW, VL; VNNI
  return found;
}
#else
X86Features detect() { return {}; }
#endif

}  // namespace

const X86Features& x86_features() noexcept {
  static const X86Features found = detect();
  return found;
}

}  // namespace pilotfish
