#!/usr/bin/env bash
# Builds, tests, sanitizes and benchmarks the CUDA library on a machine with a GPU.
# Usage: tests/gpu/run.sh [test] [memcheck] [racecheck] [bench] [engine] [batch] [python] [auto]   (by default test, memcheck and bench; racecheck
# does not follow mbarriers written in PTX: native/cuda/NOTES.md)
# engine needs ORT_LIBRARY (libonnxruntime.so.* of onnxruntime-gpu; CUDA's libraries and cuDNN on LD_LIBRARY_PATH) and runs
# the pairs named in PAIRS (default: "asym f16 1b 7b", random weights) and the bundle folders named in BUNDLES.
# batch needs the same as engine: generations that share rounds beside the same ones alone, on the pairs named in PAIRS.
# auto compares the controller with every fixed chain on the pair SHAPE (7b) at the acceptances that STDS bring; like python it
# needs the installed package.
# python runs the tests of Engine(device="cuda") and of the commands with the installed package, which must have the CUDA
# kernels: pip install '.[cuda,test]' onnx --config-settings=cmake.define.PILOTFISH_CUDA=ON; those of heads export theirs, with
# the extra export, or take them from the folder PILOTFISH_HEAD_BUNDLES (tests/gpu/make_head_bundles.py), and those of
# architectures theirs from PILOTFISH_ARCHITECTURE_BUNDLES (tests/gpu/make_architecture_bundles.py)
set -euo pipefail
cd "$(dirname "$0")/../.."

nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda*/bin/nvcc 2>/dev/null | tail -n 1 || true)}
[ -n "$nvcc" ] || { echo "no nvcc: put it on PATH or set NVCC" >&2; exit 2; }
sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$(readlink -f "$nvcc")")/compute-sanitizer")
architecture=${CUDA_ARCHITECTURE:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)}
build=${BUILD_DIR:-build/gpu}

cmake -S native -B "$build" -G Ninja -DPILOTFISH_PYTHON=OFF -DPILOTFISH_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" \
  "-DPILOTFISH_CUDA_ARCHITECTURES=$architecture" -DPILOTFISH_GPU_TESTS=ON
cmake --build "$build"

tests=(row_kernels_test round_kernels_test draft_tree_test attention_test lowbit_linear_test prefill_linear_test device_test)
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(test memcheck bench)
for step in "${steps[@]}"; do
  case $step in
    test) for program in "${tests[@]}"; do "$build/$program"; done ;;
    memcheck | racecheck)
      for program in attention_test lowbit_linear_test prefill_linear_test; do
        "$sanitizer" --tool "$step" --error-exitcode 1 "$build/$program" --small
      done ;;
    bench) "$build/lowbit_linear_bench" && "$build/layer_bench" && "$build/prefill_linear_bench" ;;
    engine)
      for pair in ${PAIRS-asym f16 1b 7b}; do
        [ -e "$build/$pair/manifest.json" ] || python3 tests/gpu/random_bundle.py "$pair" "$build/$pair"
        flags=()
        [ "$pair" != 7b ] || flags=(--no-cpu)
        "$build/engine_check" "$ORT_LIBRARY" "$build/$pair" "${flags[@]}"
      done
      for bundle in ${BUNDLES-}; do "$build/engine_check" "$ORT_LIBRARY" "$bundle"; done ;;
    batch)
      for pair in ${PAIRS-7b}; do
        [ -e "$build/$pair/manifest.json" ] || python3 tests/gpu/random_bundle.py "$pair" "$build/$pair"
        "$build/batch_check" "$ORT_LIBRARY" "$build/$pair"
      done ;;
    auto) "${PYTHON:-python3}" tests/gpu/acceptance_pairs.py "${SHAPE:-7b}" "$build" ${STDS:-0.7 0.45 0.35 0.2} ;;
    python) "${PYTHON:-python3}" -m pytest -m gpu tests/gpu ;;
    *) echo "unknown step $step: test, memcheck, racecheck, bench, engine, batch, auto or python" >&2; exit 2 ;;
  esac
done
