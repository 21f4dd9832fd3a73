// Working memory that grows to the largest request and is then reused: nothing is allocated once a thread is warm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace pilotfish {

class Scratch {
 public:
  // At least num_bytes, aligned to 64; the content is undefined and valid until the next call.
  std::byte* reserve(size_t num_bytes) {
    if (num_bytes > num_bytes_) {
      bytes_.reset();
      num_bytes_ = 0;
      bytes_.reset(static_cast<std::byte*>(::operator new(num_bytes, kAlignment)));
      num_bytes_ = num_bytes;
    }
    return bytes_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };

  std::unique_ptr<std::byte, Free> bytes_;
  size_t num_bytes_ = 0;
};

}  // namespace pilotfish
