#!/usr/bin/env bash
# Installs a wheel where there is no compiler, and generates with it: bash tests/wheel.sh WHEEL BUNDLE
# Prints the kernels that run and the tokens a second; fails where they are not this processor's best.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wheel=${1:?a wheel}
bundle=${2:?a bundle}
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"${PYTHON:-python3}" -m venv "$venv"
# Nothing but the environment's own programs: no compiler, no CMake.
PATH=$venv/bin CC=/nowhere CXX=/nowhere "$venv/bin/python" -m pip install --quiet --only-binary :all: "$wheel[cpu]"
"$venv/bin/python" -I - "$bundle" <<'PROGRAM'
import sys
import warnings

from pilotfish import Engine
from pilotfish.bindings import calls

warnings.simplefilter("error")  # that of slow kernels
with Engine(sys.argv[1], calibration="off") as engine:
    speeds = []
    for _ in range(5):
        result = engine.generate("Once upon a time", max_new_tokens=128, num_draft_tokens=0, ignore_eos=True)
        speeds.append(result.stats.tokens_per_second)
print(f"{calls.cpu_kernels()} kernels, plain decoding {max(speeds):.1f} tokens/s (the best of {len(speeds)} runs)")
PROGRAM
