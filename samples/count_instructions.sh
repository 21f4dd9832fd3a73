#!/usr/bin/env bash
# Instructions that a 64-bit Arm processor executes for a token of plain decoding, counted by qemu, with each set of
# kernels that a wheel for aarch64 has: bash samples/count_instructions.sh WHEEL BUNDLE [SET...]
# SET: portable, neon, dotprod, i8mm. Each takes minutes. What is counted is the wheel's library and ONNX Runtime's.
# Debian: apt-get install g++-aarch64-linux-gnu qemu-user-static mmdebstrap.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/aarch64_system.sh

wheel=${1:?a wheel for aarch64}
bundle=${2:?a bundle}
sets=("${@:3}")
if [ ${#sets[@]} = 0 ]; then sets=(portable neon dotprod i8mm); fi
arm_system
arm_install "$wheel"

bindings=$arm_site/pilotfish/bindings
aarch64-linux-gnu-gcc -O1 "-I$bindings/include" tests/native/bundle_digest.c "-L$bindings" -lpilotfish \
  "-Wl,-rpath,$bindings" -o build/aarch64-digest

# qemu logs each block of instructions that it translates, then each that it runs, and each call of the system: a round
# ends with a write to stdout, and the first one writes what was printed of the logits too.
# It ends once two tokens are counted, which breaks the pipe and so the program.
count() (
  set +o pipefail
  PILOTFISH_CPU=$1 QEMU_CPU=max qemu-aarch64-static -d nochain,in_asm,exec,strace build/aarch64-digest "$bundle" \
    "$arm_ort" 3 2>&1 >/dev/null <<<504 | awk -v set="$1" '
      /^0x/ { ++size; next }
      /^IN:/ { size = 0; next }
      /^Trace/ { if (size) { sizes[$3] = size; size = 0 }; instructions += sizes[$3]; next }
      /write\(1,/ {
        if (++writes > 1) printf "%s %d\n", set, instructions
        instructions = 0
        if (writes == 3) { found = 1; exit }
      }
      END { if (!found) { print set ": no two tokens were counted" >"/dev/stderr"; exit 1 } }'
)

for set in "${sets[@]}"; do count "$set"; done | awk '
  { sum += $2 }
  NR % 2 == 0 {
    if ($1 == "portable") portable = sum
    printf "%s: %.1f million instructions a token", $1, sum / 2e6
    print (portable ? sprintf(", %.3f of portable", sum / portable) : "")
    sum = 0
  }'
