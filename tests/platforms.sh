#!/usr/bin/env bash
# Whether the library and the C sample still compile and link for macOS (arm64) and Windows (x86-64), with zig's compilers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source samples/cross_compilers.sh

# For the compiler's time; zig would then add checks, and says that it needs none of what leaves them out.
unoptimised="-O0 -g0 -fno-sanitize=all -Wno-unused-command-line-argument"

# link TARGET CMAKE_ARGUMENT...
link() {
  local folder build=build/link-$1
  folder=$(compilers "$1")
  PATH=$tools/bin:$PATH CC=$folder/cc CXX=$folder/c++ cmake -S native -B "$build" -G Ninja "${@:2}" \
    -DCMAKE_BUILD_TYPE=None "-DCMAKE_C_FLAGS=$unoptimised" "-DCMAKE_CXX_FLAGS=$unoptimised" \
    -DPILOTFISH_UNITY=ON -DPILOTFISH_PYTHON=OFF -DPILOTFISH_SAMPLE=ON
  PATH=$tools/bin:$PATH cmake --build "$build" --target pilotfish generate
}

link "$macos_target" "${macos_cmake[@]}"
link "$windows_target" "${windows_cmake[@]}"
