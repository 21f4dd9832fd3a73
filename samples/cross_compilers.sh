# Compilers for other systems, from the package ziglang, for scripts that are run in the repository's root and source this
# file. It sets `tools`, the folder of a virtual environment, in which it installs them, and these functions.
tools=$PWD/build/wheel-tools
if [ ! -x "$tools/bin/python" ]; then "${PYTHON:-python3}" -m venv "$tools"; fi
"$tools/bin/python" -m pip install --quiet "ziglang==0.17.1" "scikit-build-core>=1.0,<2" "cffi>=2.1,<3" \
  "nlohmann-json>=3.12,<4" "cmake>=3.24" "ninja>=1.11"

macos_target=aarch64-macos.11.0
windows_target=x86_64-windows-gnu
# What CMake is told of a system that it cannot ask; macOS's own linker tools are not at hand.
macos_cmake=(-DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR=arm64 -DCMAKE_OSX_SYSROOT=
  -DCMAKE_INSTALL_NAME_TOOL=/bin/true -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON)
windows_cmake=(-DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=AMD64
  "-DCMAKE_RC_COMPILER=$PWD/build/zig-$windows_target/rc")

# compilers TARGET: writes cc, c++ and rc for a target of zig's, and prints their folder.
compilers() {
  local folder=$PWD/build/zig-$1 name zig
  zig=$("$tools/bin/python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / "zig")')
  mkdir -p "$folder"
  for name in cc c++; do printf '#!/bin/sh\nexec %s %s -target %s "$@"\n' "$zig" "$name" "$1" >"$folder/$name"; done
  printf '#!/bin/sh\nexec %s rc "$@"\n' "$zig" >"$folder/rc"
  chmod +x "$folder"/*
  echo "$folder"
}
