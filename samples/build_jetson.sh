#!/usr/bin/env bash
# Compiles libpilotfish_cuda.so for Jetson (64-bit Arm; compute capabilities 8.7 of Orin and 11.0 of Thor) on a machine of
# another kind, and checks what came out. It was never run on a Jetson.
#   bash samples/build_jetson.sh [ARCHITECTURES]    "87;110" where nothing is named
# It needs nvcc of CUDA 13, Debian's g++-aarch64-linux-gnu, cmake, ninja and Python; CUDA's headers and its runtime for Arm
# come from the package index. The driver on the Jetson must run CUDA 13: with an older one, compile there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

architectures=${1:-87;110}
nvcc=${NVCC:-$(command -v nvcc || true)}
python=${PYTHON:-python3}
build=build/jetson
[ -n "$nvcc" ] || { echo "no nvcc: put it on the path or set NVCC" >&2; exit 2; }
command -v aarch64-linux-gnu-g++ >/dev/null || { echo "no aarch64-linux-gnu-g++: apt-get install g++-aarch64-linux-gnu" >&2; exit 2; }
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
case $release in
  13.*) ;;
  *) echo "nvcc is of CUDA $release; the packages for Arm that this script takes are those of 13" >&2; exit 2 ;;
esac

toolkit=$build/toolkit  # CUDA's headers and libraries for Arm
if [ ! -e "$toolkit/$release/nvidia/cu13/include/fatbinary_section.h" ]; then
  "$python" -m pip download --quiet --no-deps --only-binary=:all: --platform manylinux_2_17_aarch64 \
    --platform manylinux2014_aarch64 --dest "$build/wheels" \
    "nvidia-cuda-runtime==$release.*" "nvidia-cuda-crt==$release.*" "nvidia-cuda-cccl==$release.*"
  rm -rf "$toolkit"
  for wheel in "$build"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$toolkit/$release"; done
  # Of no processor in particular, and in a package of 30 MB on the index.
  here=$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
  cp "$here/include/fatbinary_section.h" "$toolkit/$release/nvidia/cu13/include/"
fi
cuda=$PWD/$toolkit/$release/nvidia/cu13

CUDAHOSTCXX=aarch64-linux-gnu-g++ CUDAFLAGS="-isystem $cuda/include -isystem $cuda/include/cccl -L$cuda/lib" \
  cmake -S native -B "$build/native" -G Ninja --toolchain "$PWD/native/cmake/aarch64-linux.cmake" \
  -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS=-isystem $cuda/include" "-DCMAKE_CUDA_COMPILER=$nvcc" \
  -DPILOTFISH_PYTHON=OFF -DPILOTFISH_CUDA=ON "-DPILOTFISH_CUDA_ARCHITECTURES=$architectures" \
  "-DPython_EXECUTABLE=$(command -v "$python")" >/dev/null
cmake --build "$build/native" --target pilotfish_cuda

library=$build/native/libpilotfish_cuda.so
if [ ! -d "$build/tools/nvidia" ]; then  # cuobjdump, which not every toolkit has; of another release than nvcc, as it may be
  "$python" -m pip download --quiet --no-deps --only-binary=:all: --dest "$build/tools" "nvidia-cuda-cuobjdump>=13.2,<14"
  "$python" -m zipfile -e "$build"/tools/*.whl "$build/tools"
fi
cuobjdump=$build/tools/nvidia/cu13/bin/cuobjdump
chmod +x "$cuobjdump"
grep -q 'Machine: *AArch64' <<<"$(aarch64-linux-gnu-readelf --file-header "$library")" ||
  { echo "$library is not for 64-bit Arm" >&2; exit 1; }
for architecture in ${architectures//;/ }; do
  count=$("$cuobjdump" --list-elf "$library" | grep -c "sm_$architecture\.cubin") || true
  echo "code for $architecture of $count files"
  [ "$count" -gt 0 ] || { echo "$library has no code for $architecture" >&2; exit 1; }
done
needed=$(aarch64-linux-gnu-readelf --dynamic "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
glibc=$(aarch64-linux-gnu-objdump -T "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
echo "$library: $(du -h "$library" | cut -f1), needs $needed, $glibc"

if command -v qemu-aarch64-static >/dev/null; then  # it loads, with what Debian's Arm libraries have
  aarch64-linux-gnu-gcc -o "$build/read_build" -x c - <<'PROGRAM'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* library = dlopen(argv[argc - 1], RTLD_NOW);
  struct { unsigned interface; int cuda; const char* architectures; }* build = library ? dlsym(library, "pilotfish_cuda_build") : 0;
  if (!build) return fprintf(stderr, "%s\n", dlerror()), 1;
  return printf("loaded in an emulator: CUDA %d.%d, architectures %s\n", build->cuda / 1000, build->cuda % 1000 / 10, build->architectures) < 0;
}
PROGRAM
  qemu-aarch64-static -L /usr/aarch64-linux-gnu "$build/read_build" "$library"
fi
