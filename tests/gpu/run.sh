#!/usr/bin/env bash
# Builds, tests, sanitizes and benchmarks the CUDA library on a machine with a GPU.
# Usage: tests/gpu/run.sh [test] [memcheck] [racecheck] [bench] [engine] [batch] [rounds] [shared] [python] [auto] [stream]   (by default test, memcheck and bench; racecheck
# does not follow mbarriers written in PTX: native/cuda/NOTES.md)
# engine needs ORT_LIBRARY (libonnxruntime.so.* of onnxruntime-gpu; CUDA's libraries and cuDNN on LD_LIBRARY_PATH) and runs
# the pairs named in PAIRS (default: "asym f16 1b 7b", random weights) and the bundle folders named in BUNDLES.
# batch needs the same as engine: generations that share rounds beside the same ones alone, on the pairs named in PAIRS.
# rounds is what shared rounds need in a few minutes: their kernels, on a tiny pair with memcheck, tokens a second of the
# 7b pair always right and at std 0.45, and with HEAD_BUNDLE, a bundle with a head, and PROMPTS also of its chains together
# and of auto by category. The table at the end is all of its tokens a second.
# shared is what rounds of every kind that generations share need in two minutes: their kernels, every kind on a tiny pair
# beside the same generations alone, and where the time of a step goes on the 7b pair that is right at three of four tokens.
# auto compares the controller with every fixed chain on the pair SHAPE (7b) at the acceptances that STDS bring; like python it
# needs the installed package.
# stream runs the pair SHAPE (7b) with half of the target's weights in host memory, beside the bound of the link; it needs the
# installed package too.
# python runs the tests of Engine(device="cuda") and of the commands with the installed package, which must have the CUDA
# kernels: pip install '.[cuda,test]' onnx --config-settings=cmake.define.PILOTFISH_CUDA=ON; those of heads export theirs, with
# the extra export, or take them from the folder PILOTFISH_HEAD_BUNDLES (tests/gpu/make_head_bundles.py), and those of
# architectures theirs from PILOTFISH_ARCHITECTURE_BUNDLES (tests/gpu/make_architecture_bundles.py); PILOTFISH_REAL_BUNDLE
# is the SmolLM2 bundle that tests/run.sh exports
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

tests=(row_kernels_test row_steps_test round_kernels_test draft_tree_test attention_test lowbit_linear_test prefill_linear_test device_test)
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
    rounds)
      log=$build/rounds.log
      {
        "$build/attention_test"
        "$build/lowbit_linear_test"
        "$build/round_kernels_test"
        "$build/attention_bench" --sequences
        "$build/lowbit_linear_bench" int4
        [ -e "$build/tiny/manifest.json" ] || python3 tests/gpu/random_bundle.py tiny "$build/tiny" --std 0.4
        "$sanitizer" --tool memcheck --error-exitcode 1 "$build/attention_test" --small
        "$sanitizer" --tool memcheck --error-exitcode 1 "$build/batch_check" "$ORT_LIBRARY" "$build/tiny" --tokens 12 --brief 1
        [ -e "$build/7b-0.7/manifest.json" ] || python3 tests/gpu/random_bundle.py 7b "$build/7b-0.7" --std 0.7
        [ -e "$build/7b-0.45/manifest.json" ] || PYTHONPATH=tests/gpu python3 -c \
          'import sys; from pathlib import Path; import acceptance_pairs as pairs; base, folder = map(Path, sys.argv[1:]); \
pairs.copy_with_std(base, folder, pairs.random_bundle.PAIRS["7b"][0], 0.45)' "$build/7b-0.7" "$build/7b-0.45"
        for std in 0.7 0.45; do "$build/batch_check" "$ORT_LIBRARY" "$build/7b-$std" --brief 1; done
        if [ -n "${HEAD_BUNDLE-}" ]; then
          "$build/batch_check" "$ORT_LIBRARY" "$HEAD_BUNDLE" --drafted 3 --brief 1
          "${PYTHON:-python3}" samples/search_settings.py "$HEAD_BUNDLE" --prompts "$PROMPTS" --device cuda --per-category 3 \
            --new-tokens 96 --calibration refresh
        fi
      } 2>&1 | tee "$log"
      echo "== tokens a second, generations together; of plain, auto and the best fixed setting by category"
      grep -E '^== |tok/s| (greedy|mixed|sample) |auto/best|^(all|chat|code|math|rag|summarisation|translation) ' "$log" ;;
    shared)
      for program in round_kernels_test draft_tree_test attention_test; do "$build/$program"; done
      [ -e "$build/tiny/manifest.json" ] || python3 tests/gpu/random_bundle.py tiny "$build/tiny" --std 0.4
      "$build/batch_check" "$ORT_LIBRARY" "$build/tiny" --tokens 40
      [ -e "$build/7b-0.45/manifest.json" ] || python3 tests/gpu/random_bundle.py 7b "$build/7b-0.45" --std 0.45
      for word in chain tree host lookup; do
        "$build/batch_check" "$ORT_LIBRARY" "$build/7b-0.45" --brief 1 --tokens 96 --only $word
      done ;;
    auto) "${PYTHON:-python3}" tests/gpu/acceptance_pairs.py "${SHAPE:-7b}" "$build" ${STDS:-0.7 0.45 0.35 0.2} ;;
    stream) "${PYTHON:-python3}" tests/gpu/streamed_pairs.py "${SHAPE:-7b}" "$build" ;;
    python) "${PYTHON:-python3}" -m pytest -m gpu tests/gpu ;;
    *) echo "unknown step $step: test, memcheck, racecheck, bench, engine, batch, rounds, shared, auto, stream or python" >&2; exit 2 ;;
  esac
done
