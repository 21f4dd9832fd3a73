#include "features_arm.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace pilotfish {

#if defined(__aarch64__) && defined(__linux__)
ArmFeatures arm_features() noexcept {
  // Bits of Linux' interface for 64-bit Arm; older headers lack the names.
  constexpr unsigned long kSha2 = 1ul << 6, kDotprod = 1ul << 20;  // of AT_HWCAP
  constexpr unsigned long kI8mm = 1ul << 13;                       // of AT_HWCAP2
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {.dotprod = (first & kDotprod) != 0, .i8mm = (second & kI8mm) != 0, .sha2 = (first & kSha2) != 0};
}
#elif defined(__aarch64__) && defined(__APPLE__)
ArmFeatures arm_features() noexcept {
  const auto has = [](const char* name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
  };
  return {.dotprod = has("hw.optional.arm.FEAT_DotProd"),
          .i8mm = has("hw.optional.arm.FEAT_I8MM"),
          .sha2 = has("hw.optional.arm.FEAT_SHA256")};
}
#else
ArmFeatures arm_features() noexcept { return {}; }
#endif

}  // namespace pilotfish
