#!/usr/bin/env bash
# Whether the library still compiles for macOS (arm64) and Windows (x86-64), with zig's compilers:
#   bash tests/platforms.sh layer    the platform layer and what uses it alone, in seconds
#   bash tests/platforms.sh link     the whole library and the C sample, linked; 5 minutes on two cores
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source samples/cross_compilers.sh

json=$("$tools/bin/python" -c "import nlohmann_json, pathlib; print(pathlib.Path(list(nlohmann_json.__path__)[0]) / 'include')")
users=(atomic_file cores pages x86_features)
declare -A systems=(["$macos_target"]="posix macos" ["$windows_target"]=windows)

# layer TARGET
layer() {
  local folder system source
  folder=$(compilers "$1")
  for system in ${systems[$1]}; do
    for source in native/src/base/platform/*_"$system".cpp; do check "$folder" "$source"; done
  done
  for source in "${users[@]}"; do check "$folder" "native/src/base/$source.cpp"; done
  for source in bundle/bundle_files model/ort device/cuda_driver device/cuda_library; do
    check "$folder" "native/src/$source.cpp"
  done
}

# check FOLDER SOURCE
check() {
  "$1/c++" -std=c++20 -Wall -Wextra -Werror -DNOMINMAX -DWIN32_LEAN_AND_MEAN -Inative/include -Inative/src -Inative/ops \
    -Inative/cpu -isystem "$json" -c "$2" -o build/platform-layer.o
}

# For the compiler's time; zig would then add checks, and says that it needs none of what leaves them out.
unoptimised="-O0 -fno-sanitize=all -Wno-unused-command-line-argument"

# link TARGET CMAKE_ARGUMENT...
link() {
  local folder build=build/link-$1
  folder=$(compilers "$1")
  PATH=$tools/bin:$PATH CC=$folder/cc CXX=$folder/c++ cmake -S native -B "$build" -G Ninja "${@:2}" \
    -DCMAKE_BUILD_TYPE=None "-DCMAKE_C_FLAGS=$unoptimised" "-DCMAKE_CXX_FLAGS=$unoptimised" \
    -DPILOTFISH_PYTHON=OFF -DPILOTFISH_SAMPLE=ON
  PATH=$tools/bin:$PATH cmake --build "$build" --target pilotfish generate
}

case ${1:-} in
  layer)
    for target in "${!systems[@]}"; do layer "$target"; done
    ;;
  link)
    link "$macos_target" "${macos_cmake[@]}"
    link "$windows_target" "${windows_cmake[@]}"
    ;;
  *)
    echo "usage: bash tests/platforms.sh layer | link" >&2
    exit 2
    ;;
esac
