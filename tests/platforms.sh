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

# Beside each other: zig compiles its own libraries, which comes first, one file after the other.
mkdir -p build
link "$macos_target" "${macos_cmake[@]}" >build/link-macos.log 2>&1 & macos=$!
link "$windows_target" "${windows_cmake[@]}" >build/link-windows.log 2>&1 & windows=$!
failed=0
wait "$macos" || failed=1
wait "$windows" || failed=1
cat build/link-macos.log build/link-windows.log
exit "$failed"
