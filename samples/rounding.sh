#!/usr/bin/env bash
# What rounding to 4 bits costs SmolLM2, by formats and rounding: bash samples/rounding.sh FOLDER CALIBRATION TEXT
# CALIBRATION is what the rounding reads, TEXT what the report is measured on: plain text files of the same kind.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}") folder=$1 calibration=$2 text=$3
mkdir -p "$folder"
python "$here/plain_weights.py" smollm2 "$folder/plain"
draft=(--draft "$here/smollm2-draft-19m.gguf" --draft-linear int8 --draft-embedding int4 --draft-lm-head int4 --draft-vocab 16384)
pilotfish export "$folder/plain" --out "$folder/nearest" "${draft[@]}"
pilotfish export "$folder/plain" --out "$folder/calibrated" "${draft[@]}" --calibration "$calibration"
pilotfish export "$folder/plain" --out "$folder/mixture" "${draft[@]}" --calibration "$calibration" --bits 4.25
pilotfish evaluate-weights "$folder/nearest" "$folder/calibrated" "$folder/mixture" --target "$folder/plain" \
  --text "$text" --tokens 16384 --html "$folder/weights.html" --json "$folder/weights.json"
