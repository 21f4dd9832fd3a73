# The sources of the operating system that is built for; nothing else names one.
if(WIN32)
  set(pilotfish_platform_sources
    src/base/platform/files_windows.cpp
    src/base/platform/library_windows.cpp
    src/base/platform/memory_windows.cpp
    src/base/platform/pages_windows.cpp
    src/base/platform/processor_windows.cpp)
  add_compile_definitions(NOMINMAX WIN32_LEAN_AND_MEAN)
else()
  set(pilotfish_platform_sources
    src/base/platform/files_posix.cpp
    src/base/platform/library_posix.cpp
    src/base/platform/pages_posix.cpp)
  if(APPLE)
    list(APPEND pilotfish_platform_sources
      src/base/platform/memory_macos.cpp
      src/base/platform/processor_macos.cpp)
  else()
    list(APPEND pilotfish_platform_sources
      src/base/platform/control_groups_linux.cpp
      src/base/platform/memory_linux.cpp
      src/base/platform/processor_linux.cpp)
  endif()
endif()
