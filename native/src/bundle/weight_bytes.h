// The bytes of a weights file where an engine reads them: in memory of its own, but for ranges of the file that it has
// no room for. These are mapped: passes read them from the file, whose pages the system keeps while it has memory for
// them. Whoever changes the file under an engine changes its weights, and one that becomes shorter ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/pages.h"
#include "bundle/bundle_files.h"

namespace pilotfish {

// Of a file.
struct FileRange {
  uint64_t offset;
  uint64_t num_bytes;

  uint64_t end() const noexcept { return offset + num_bytes; }
};

class WeightBytes {
 public:
  // The file's first num_bytes have room in memory, but for `mapped`, in any order. Throws PF_OUT_OF_MEMORY, and
  // PF_FILE_MISSING where the file's system maps none.
  WeightBytes(const BundleFile& file, uint64_t num_bytes, std::span<const FileRange> mapped);
  WeightBytes(WeightBytes&&) = delete;
  ~WeightBytes();

  // Of a tensor, which begins at a multiple of 4096 in the file and here. It must not be written to.
  std::byte* at(FileRange tensor) const noexcept;

  // Where the whole file is to be read to; nullptr where some is mapped: then keep() takes what has been read.
  std::byte* in_place() const noexcept { return mapping_ ? nullptr : pages_.data(); }
  void keep(uint64_t offset, std::span<const std::byte> piece) noexcept;

 private:
  struct Part {
    FileRange range;
    std::byte* data;
  };

  WeightBytes(const BundleFile& file, const std::vector<FileRange>& resident, bool is_mapped);

  Pages pages_;
  std::vector<Part> resident_;
  std::byte* mapping_ = nullptr;  // of the whole file; nullptr: nothing is mapped
  uint64_t mapping_bytes_ = 0;
};

}  // namespace pilotfish
