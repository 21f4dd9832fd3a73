// SHA-256 (FIPS 180-4), with the SHA extensions of x86 where the processor has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pilotfish {

class Sha256 {
 public:
  enum class Path { kFastest, kPortable };

  explicit Sha256(Path path = Path::kFastest);
  void update(const void* data, size_t num_bytes);
  // 64 lower-case hexadecimal digits. The object is used up.
  std::string finish();

 private:
  // Hashes whole 64-byte blocks into the state.
  using Compress = void (*)(uint32_t* state, const uint8_t* blocks, size_t num_blocks);

  Compress compress_;
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_;
  size_t num_pending_ = 0;
  uint64_t num_bytes_ = 0;
};

}  // namespace pilotfish
