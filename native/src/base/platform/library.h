// Shared libraries: opened by name or path, for the life of the process.
#pragma once

#include <filesystem>
#include <string>

namespace pilotfish::platform {

struct OpenedLibrary {
  void* handle;        // nullptr: it could not be opened
  std::string reason;  // why, in the system's words
  bool lacks_memory;   // and whether there was no room for it
};

// Its threads and thread-local destructors may outlive whoever opened it, so nothing unloads it.
OpenedLibrary open_library(const std::string& path);
// nullptr: it has none of that name.
void* find_symbol(void* library, const char* name) noexcept;

// The file that holds the function at this address; empty where the system does not tell.
std::filesystem::path file_of(const void* function);

// "libname.so", "libname.dylib" or "name.dll".
std::string library_name(const char* name);
// NVIDIA's driver, wherever the system has it.
std::string cuda_driver_name();

}  // namespace pilotfish::platform
