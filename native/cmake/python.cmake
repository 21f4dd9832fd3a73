# The cffi module: its declarations are cut from pilotfish.h, so the header is the only place where the API is spelled.
if(NOT Python_Development.SABIModule_FOUND AND NOT PILOTFISH_WINDOWS_PYTHON)
  message(FATAL_ERROR "Python's development headers are missing (Debian: python3-dev)")
endif()

set(ffi_dir "${CMAKE_CURRENT_BINARY_DIR}/ffi")
set(ffi_header "${CMAKE_CURRENT_SOURCE_DIR}/include/pilotfish.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${ffi_header}")
file(READ "${ffi_header}" declarations)
string(REGEX REPLACE ".*/\\* cdef:begin[^\n]*\n(.*)/\\* cdef:end.*" "\\1" declarations "${declarations}")
string(REPLACE "PF_API " "" declarations "${declarations}")
string(APPEND declarations "static char *const PF_VERSION;\nstatic const float PF_LEAST_TEMPERATURE;\n")
# The callbacks through which Python functions answer; bindings/masks.py and bindings/progress.py define them.
string(APPEND declarations "extern \"Python\" int32_t pf_python_mask(void*, const int32_t*, size_t, uint32_t*);\n")
string(APPEND declarations "extern \"Python\" int32_t pf_python_progress(void*, int32_t, uint64_t, uint64_t);\n")
file(CONFIGURE OUTPUT "${ffi_dir}/pilotfish.cdef" CONTENT "${declarations}" @ONLY)
file(CONFIGURE OUTPUT "${ffi_dir}/prelude.c" CONTENT "#include \"pilotfish.h\"\n" @ONLY)
add_custom_command(
  OUTPUT "${ffi_dir}/_ffi.c"
  COMMAND "${Python_EXECUTABLE}" -m cffi.gen_src read-sources pilotfish.bindings._ffi
          "${ffi_dir}/pilotfish.cdef" "${ffi_dir}/prelude.c" "${ffi_dir}/_ffi.c"
  DEPENDS "${ffi_dir}/pilotfish.cdef" "${ffi_dir}/prelude.c"
  VERBATIM)

# Windows looks for the library beside the module by itself.
if(PILOTFISH_WINDOWS_PYTHON)  # what samples/windows_python.py has made, for a build on another system
  add_library(_ffi MODULE "${ffi_dir}/_ffi.c")
  target_compile_definitions(_ffi PRIVATE Py_LIMITED_API=0x030A0000)
  target_include_directories(_ffi SYSTEM PRIVATE "${PILOTFISH_WINDOWS_PYTHON}")
  target_link_libraries(_ffi PRIVATE "${PILOTFISH_WINDOWS_PYTHON}/python3.lib")
  set_target_properties(_ffi PROPERTIES PREFIX "" SUFFIX ".pyd")
else()
  python_add_library(_ffi MODULE USE_SABI 3.10 WITH_SOABI "${ffi_dir}/_ffi.c")
endif()
target_link_libraries(_ffi PRIVATE pilotfish)
if(APPLE)
  # A library in place of a bundle, which zig's linker cannot make; Python loads either.
  set(CMAKE_SHARED_MODULE_CREATE_C_FLAGS "-dynamiclib -Wl,-headerpad_max_install_names")
  set_target_properties(_ffi PROPERTIES INSTALL_RPATH "@loader_path")
else()
  set_target_properties(_ffi PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()

# RUNTIME and ARCHIVE are Windows' library and what links with it.
install(TARGETS pilotfish _ffi LIBRARY DESTINATION pilotfish/bindings RUNTIME DESTINATION pilotfish/bindings
        ARCHIVE DESTINATION pilotfish/bindings)
install(FILES "${ffi_header}" DESTINATION pilotfish/bindings/include)
# Where optimum-cli looks for subcommands.
install(FILES "${CMAKE_CURRENT_SOURCE_DIR}/../runtime/cli/optimum_command.py" DESTINATION optimum/commands/register
        RENAME pilotfish.py)
