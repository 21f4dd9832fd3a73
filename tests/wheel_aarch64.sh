#!/usr/bin/env bash
# Installs a wheel for aarch64 with an Arm Python in qemu, generates with it, and compares with what this machine's
# installation generates: bash tests/wheel_aarch64.sh WHEEL BUNDLE
# Needs build/test-venv (tests/run.sh). Debian: apt-get install qemu-user-static mmdebstrap.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/aarch64_system.sh

wheel=${1:?a wheel for aarch64}
bundle=${2:?a bundle}
program='
import platform, sys
from pilotfish import Engine
from pilotfish.bindings import calls

print(f"{platform.machine()}, {calls.cpu_kernels()} kernels", file=sys.stderr)
with Engine(sys.argv[1], calibration="off", threads=1) as engine:
    for options in ({"num_draft_tokens": 0}, {}, {"temperature": 0.8, "seed": 7}):
        result = engine.generate("Once upon a time", max_new_tokens=8, ignore_eos=True, **options)
        print(result.token_ids, result.text)
'
arm_system
arm_install "$wheel"
here=$(build/test-venv/bin/python -c "$program" "$bundle")
there=$(QEMU_CPU=${QEMU_CPU:-max} arm_python -c "$program" "$bundle")
printf '%s\n' "$there"
if [ "$here" != "$there" ]; then
  printf 'this machine generates something else:\n%s\n' "$here" >&2
  exit 1
fi
