#!/usr/bin/env bash
# 64-bit Arm without the hardware: cross-compiles the library and the native tests and runs them in qemu, as processors
# without dot product instructions, with them, and with those for matrices.
#   bash tests/aarch64.sh            the kernels, and the tests of what Arm has code of its own for
#   bash tests/aarch64.sh --all      all native tests
#   bash tests/aarch64.sh --bundle BUNDLE [--prompts FILE] [--tokens N] [--emulated M]
#                                    besides, logits and tokens of a bundle, with every source of drafts: this machine's
#                                    sets of kernels for all prompts, Arm's in qemu for the first M (all)
# Debian: apt-get install g++-aarch64-linux-gnu qemu-user-static. A bundle needs build/test-venv (tests/run.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=(kernels_test sha256_test row_math_test shared_noise_test random_stream_test sampler_test header_test)
bundle="" num_tokens=12 emulated=1000000
prompts=tests/data/aarch64_prompts.txt
while [ $# -gt 0 ]; do
  case $1 in
    --all) tests=(); shift ;;
    --bundle) bundle=$2; shift 2 ;;
    --prompts) prompts=$2; shift 2 ;;
    --tokens) num_tokens=$2; shift 2 ;;
    --emulated) emulated=$2; shift 2 ;;
    *) echo "aarch64.sh: unknown argument $1" >&2; exit 2 ;;
  esac
done

build=build/aarch64-tests
python=$(command -v python3)
if [ -x build/test-venv/bin/python ]; then python=$PWD/build/test-venv/bin/python; fi
# -O1 compiles in half the time; kernels have the same bits at every level.
cmake -S native -B "$build" -G Ninja --toolchain "$PWD/native/cmake/aarch64-linux.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" -DPILOTFISH_TESTS=ON -DPILOTFISH_UNITY=ON \
  -DPILOTFISH_PYTHON=OFF "-DPython_EXECUTABLE=$python" >/dev/null
cmake --build "$build" ${tests[0]:+--target "${tests[@]}"}

root=$PWD/build/aarch64-root  # where programs in qemu look first
mkdir -p "$root/proc"
ln -sfn /usr/aarch64-linux-gnu/lib "$root/lib"
# ONNX Runtime reads it, and would see the host's.
printf '%s\n' 'processor : 0' 'BogoMIPS : 50.00' 'Features : fp asimd' 'CPU implementer : 0x41' 'CPU architecture: 8' \
  'CPU variant : 0x3' 'CPU part : 0xd0c' 'CPU revision : 1' >"$root/proc/cpuinfo"
export QEMU_LD_PREFIX=$root
cores=(cortex-a72 neoverse-n1 max)  # neon, dotprod, i8mm

for core in "${cores[@]}"; do
  printf '%s: ' "$core"
  QEMU_CPU=$core qemu-aarch64-static "$build/kernels_test"
done
QEMU_CPU=max ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" \
  ${tests[0]:+-R "^($(IFS='|'; echo "${tests[*]}"))\$"}
QEMU_CPU=cortex-a72 qemu-aarch64-static "$build/sha256_test"
if [ -z "$bundle" ]; then exit 0; fi

wheels=build/aarch64-wheels
if [ ! -d "$wheels/onnxruntime" ]; then
  "$python" -m pip download --quiet --no-deps --platform manylinux_2_28_aarch64 --only-binary=:all: -d "$wheels" \
    "onnxruntime==$("$python" -c 'import onnxruntime; print(onnxruntime.__version__)')"
  "$python" -m zipfile -e "$wheels"/onnxruntime-*.whl "$wheels"
fi
arm_ort=$(echo "$wheels"/onnxruntime/capi/libonnxruntime.so.*)
host_ort=$("$python" -c 'import pilotfish.runtime.ort as ort; print(ort.ort_library("cpu"))')
cmake --build "$build" --target bundle_digest
read -ra flags <<<"$("$python" -m pilotfish.bindings)"
cc tests/native/bundle_digest.c "${flags[@]}" -o "$build/host_digest"
digests=build/aarch64-digests
rm -rf "$digests"
mkdir -p "$digests"

# compare SET: with the digests of every other set, of which this may have the first prompts alone. A line names what
# differs: logits, or the tokens of a source.
compare() {
  local other
  for other in "$digests"/*; do
    if ! diff <(head -n "$(wc -l <"$digests/$1")" "$other") "$digests/$1" >"$digests.diff"; then
      echo "$(basename "$other") and $1 differ:" >&2
      head -n 20 "$digests.diff" >&2
      exit 1
    fi
  done
}

for set in portable avx2 avx512vnni; do
  status=0
  PILOTFISH_CPU=$set "$build/host_digest" "$bundle" "$host_ort" "$num_tokens" <"$prompts" >"$digests/$set" || status=$?
  case $status in
    0) compare "$set" ;;
    3) echo "this processor lacks $set"; rm "$digests/$set" ;;
    *) exit 1 ;;
  esac
done
# Within a set it is enough to look at one: tokens with drafts are those of plain decoding.
awk '/^logits/ { delete plain; next }
  { how = $1; source = $2; $1 = $2 = "" }
  source == "plain" { plain[how] = $0 }
  plain[how] != $0 { print "line " NR ": " how " " source $0 ", but plain" plain[how] >"/dev/stderr"; exit 1 }' \
  "$digests/portable"
for core in "${cores[@]}"; do
  QEMU_CPU=$core qemu-aarch64-static "$build/bundle_digest" "$bundle" "$arm_ort" "$num_tokens" \
    < <(head -n "$emulated" "$prompts") >"$digests/$core"
  compare "$core"
done
echo "the same logits and tokens:"
grep -c '^logits' "$digests"/* | sed 's|.*/||; s|:|: prompts |'
