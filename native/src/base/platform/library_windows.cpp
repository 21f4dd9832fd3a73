#include <windows.h>

#include <system_error>

#include "base/platform/library.h"
#include "base/platform/text.h"

namespace pilotfish::platform {

OpenedLibrary open_library(const std::string& path) {
  const std::filesystem::path file = path_of_text(path);
  // With a whole path, the libraries that it needs are looked for beside it.
  const DWORD search = file.is_absolute() ? LOAD_WITH_ALTERED_SEARCH_PATH : 0;
  const HMODULE handle = LoadLibraryExW(file.c_str(), nullptr, search);
  if (handle) return {handle, {}, false};
  const DWORD code = GetLastError();
  return {nullptr, path + ": " + std::system_category().message(static_cast<int>(code)),
          code == ERROR_NOT_ENOUGH_MEMORY || code == ERROR_OUTOFMEMORY || code == ERROR_COMMITMENT_LIMIT};
}

void* find_symbol(void* library, const char* name) noexcept {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

std::filesystem::path file_of(const void* function) {
  HMODULE module = nullptr;
  const DWORD how = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExW(how, static_cast<const wchar_t*>(function), &module)) return {};
  std::wstring path(MAX_PATH, L'\0');
  while (true) {
    const DWORD length = GetModuleFileNameW(module, path.data(), static_cast<DWORD>(path.size()));
    if (length == 0) return {};
    if (length < path.size()) {
      path.resize(length);
      return path;
    }
    path.resize(2 * path.size());
  }
}

std::string library_name(const char* name) { return std::string(name) + ".dll"; }

std::string cuda_driver_name() { return "nvcuda.dll"; }

}  // namespace pilotfish::platform
