#!/usr/bin/env bash
# Installs what the tests need into build/test-venv, exports the real pair once, and runs all tests.
# Arguments go to pytest: bash tests/run.sh tests/runtime -k stop
# MORE_EXTRAS=lint,docs installs these of pyproject.toml too, without building the package once more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=build/test-venv
bundle=build/smollm2  # remove it after a change of the exporter
if [ ! -x "$venv/bin/python" ]; then "${PYTHON:-python3}" -m venv "$venv"; fi
source "$venv/bin/activate"

# torch first and by its version: pip keeps it, and takes a CPU-only build of it where one is at hand.
echo "installing into $venv, which takes minutes where torch must be fetched"
python -m pip install --quiet "torch==2.13.0"
extras=cpu,export,structured,train,serve,report,test${MORE_EXTRAS:+,$MORE_EXTRAS}
if command -v chromium google-chrome >/dev/null; then extras+=,browser; fi # pages are looked at in a browser where one is
python -m pip install --quiet ".[$extras]"

if [ ! -f "$bundle/manifest.json" ]; then
  pilotfish export smollm2 --draft samples/smollm2-draft-19m.gguf --draft-vocab 8192 --out "$bundle"
fi
# A test that takes memory without end fails; without a limit the kernel would end its process, and pytest-xdist waits
# for such a one for ever unless it may start no other.
ulimit -S -v $((16 << 20))
# Two processes take the files in turn, in the order of tests/conftest.py; torch's threads would only be in each other's way.
unset PYTHONUNBUFFERED # users' output waits in a buffer; with this variable, errors of a full disk show elsewhere
PILOTFISH_REAL_BUNDLE="$PWD/$bundle" OMP_NUM_THREADS=1 pytest -n "${TEST_PROCESSES:-2}" --max-worker-restart 0 \
  --dist loadfile --no-loadscope-reorder "$@"
