// Files that are there whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace pilotfish {

// Replaces the file by `content`, so that a reader, or a crash in between, sees either the old file or the new one.
// Makes missing folders. Throws PF_FILE_MISSING with the system's reason.
void write_file(const std::filesystem::path& path, std::string_view content);
// Nothing if the file does not exist. Throws PF_FILE_MISSING if it does, but cannot be read, or has more than
// max_bytes.
std::optional<std::string> read_file(const std::filesystem::path& path, size_t max_bytes);

}  // namespace pilotfish
