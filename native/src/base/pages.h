// Anonymous memory straight from the kernel: zero, page-aligned and resident only where it was touched.
#pragma once

#include <cstddef>

namespace pilotfish {

class Pages {
 public:
  // Huge pages save a third of the time of a pass that streams weights; small ones keep an unused cache cheap.
  enum class Size { kSmall, kHuge };

  // Throws PF_OUT_OF_MEMORY.
  Pages(size_t num_bytes, Size size);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&&) = delete;
  ~Pages();

  std::byte* data() const noexcept { return data_; }
  size_t num_bytes() const noexcept { return num_bytes_; }

 private:
  std::byte* mapping_;
  size_t mapping_bytes_;
  std::byte* data_;
  size_t num_bytes_;
};

}  // namespace pilotfish
