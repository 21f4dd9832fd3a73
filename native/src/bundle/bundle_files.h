// The files that a manifest names, read and checked against its sizes and hashes.
#pragma once

#include <filesystem>

#include "bundle/manifest.h"
#include "memory/pages.h"

namespace pilotfish {

// Throws PF_FILE_MISSING, or PF_BUNDLE_CORRUPT with the expected and the found size.
void check_file_size(const std::filesystem::path& folder, const FileEntry& entry);
// Also hashes the file; PF_BUNDLE_CORRUPT with both hashes.
void check_file(const std::filesystem::path& folder, const FileEntry& entry);
// The whole file in huge pages, hashed on the way.
Pages read_weights(const std::filesystem::path& folder, const FileEntry& entry);

}  // namespace pilotfish
