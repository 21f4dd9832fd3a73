// What a 64-bit Arm processor has beyond NEON, as the operating system says. On other processors nothing.
#pragma once

namespace pilotfish {

struct ArmFeatures {
  bool dotprod = false;
  bool i8mm = false;
  bool sha2 = false;
};

ArmFeatures arm_features() noexcept;

}  // namespace pilotfish
