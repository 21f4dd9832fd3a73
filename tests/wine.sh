#!/usr/bin/env bash
# The library of a wheel for Windows in Wine: links samples/generate.c with it, generates with ONNX Runtime's wheel for
# Windows, and compares with what this machine's installation generates: bash tests/wine.sh WHEEL BUNDLE
# Needs build/test-venv (tests/run.sh). Debian: apt-get install wine wine64. It ran in Wine 8 with ONNX Runtime 1.32.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source samples/cross_compilers.sh

wheel=${1:?a wheel for Windows}
bundle=$(realpath "${2:?a bundle}")
folder=$PWD/build/wine
rm -rf "$folder"
mkdir -p "$folder"
"$tools/bin/python" -m pip download --quiet --no-deps --platform win_amd64 --only-binary=:all: --python-version 3.12 \
  --dest "$folder" "onnxruntime==$(build/test-venv/bin/python -c 'import onnxruntime; print(onnxruntime.__version__)')"
for archive in "$wheel" "$folder"/onnxruntime-*.whl; do "$tools/bin/python" -m zipfile -e "$archive" "$folder"; done

bindings=$folder/pilotfish/bindings
"$(compilers "$windows_target")/cc" -O1 "-I$bindings/include" samples/generate.c "-L$bindings" -lpilotfish \
  -o "$bindings/generate.exe"
read -ra flags <<<"$(build/test-venv/bin/python -m pilotfish.bindings)"
cc samples/generate.c "${flags[@]}" -o "$folder/generate"

arguments=(4 16 504 3575 282 4649 314)
host_ort=$(build/test-venv/bin/python -c 'import pilotfish.runtime.ort as ort; print(ort.ort_library("cpu"))')
here=$("$folder/generate" "$bundle" "$host_ort" "${arguments[@]}")
export WINEPREFIX=$folder/prefix WINEDEBUG=${WINEDEBUG:--all} WINEARCH=win64
there=$(wine "$bindings/generate.exe" "Z:${bundle//\//\\}" "Z:${folder//\//\\}\\onnxruntime\\capi\\onnxruntime.dll" \
  "${arguments[@]}")
printf '%s\n' "$there"
if [ "$here" != "$there" ]; then
  printf 'this machine generates something else:\n%s\n' "$here" >&2
  exit 1
fi
