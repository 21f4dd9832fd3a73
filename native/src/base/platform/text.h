// Paths as the C API has them: UTF-8 on Windows, the file system's own bytes elsewhere.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace pilotfish::platform {

std::filesystem::path path_of_text(std::string_view text);
std::string text_of_path(const std::filesystem::path& path);

}  // namespace pilotfish::platform
