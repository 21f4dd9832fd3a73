#!/usr/bin/env bash
# Builds, tests, sanitizes and benchmarks the CUDA kernels on a machine with a GPU; prints one table at the end.
# Usage: tests/gpu/run.sh [test] [memcheck] [racecheck] [bench]   (by default all but racecheck, which does not follow
# mbarriers written in PTX: native/cuda/NOTES.md)
set -euo pipefail
cd "$(dirname "$0")/../.."

nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda*/bin/nvcc 2>/dev/null | tail -n 1 || true)}
[ -n "$nvcc" ] || { echo "no nvcc: put it on PATH or set NVCC" >&2; exit 2; }
tools=$(dirname "$(readlink -f "$nvcc")")
sanitizer=$(command -v compute-sanitizer || echo "$tools/compute-sanitizer")
architecture=${CUDA_ARCHITECTURE:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)}
build=${BUILD_DIR:-build/gpu}
mkdir -p "$build"

flags=(-std=c++20 -O3 -lineinfo -gencode "arch=compute_$architecture,code=sm_$architecture" -Inative/cuda -Itests/gpu
       -Xcompiler -Wall,-Wextra,-Werror ${NVCC_FLAGS:-})
sources=(native/cuda/lowbit_linear native/cuda/lowbit_plan native/cuda/lowbit_repack
         tests/gpu/lowbit_linear_test tests/gpu/lowbit_linear_bench)
pids=()
for source in "${sources[@]}"; do
  "$nvcc" "${flags[@]}" -c "$source.cu" -o "$build/$(basename "$source").o" & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
library=("$build"/lowbit_linear.o "$build"/lowbit_plan.o "$build"/lowbit_repack.o)
for program in lowbit_linear_test lowbit_linear_bench; do
  "$nvcc" "${flags[@]}" "$build/$program.o" "${library[@]}" -o "$build/$program"
done

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(test memcheck bench)
for step in "${steps[@]}"; do
  case $step in
    test) "$build/lowbit_linear_test" ;;
    memcheck | racecheck) "$sanitizer" --tool "$step" --error-exitcode 1 "$build/lowbit_linear_test" --small ;;
    bench) "$build/lowbit_linear_bench" ;;
    *) echo "unknown step $step: test, memcheck, racecheck or bench" >&2; exit 2 ;;
  esac
done
