#!/usr/bin/env bash
# What rounding costs SmolLM2, by formats and rounding: bash samples/rounding.sh FOLDER CALIBRATION TEXT [TOKENS]
# CALIBRATION is what the rounding reads, TEXT what the report is measured on, TOKENS how much of it at most: plain text
# files of the same kind. Bundles that are there stay, so that a run that was ended goes on.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}") folder=$1 calibration=$2 text=$3 tokens=${4:-16384}
mkdir -p "$folder"
# Its only public weights at hand are blocks, whose grid int4_asym has without a loss: --off-grid takes them from it.
[ -f "$folder/plain/config.json" ] || python "$here/plain_weights.py" smollm2 "$folder/plain" --off-grid
draft=(--draft "$here/smollm2-draft-19m.gguf" --draft-linear int8 --draft-embedding int4 --draft-lm-head int4 --draft-vocab 16384)
bundles=()

bundle() {  # NAME OPTION...
  bundles+=("$folder/$1")
  [ -d "$folder/$1" ] || pilotfish export "$folder/plain" --out "$folder/$1" "${draft[@]}" --no-parity "${@:2}"
}

bundle nearest
bundle int8 --linear int8
bundle calibrated --calibration "$calibration"
bundle mixture-4.25 --calibration "$calibration" --bits 4.25
bundle asym --linear int4_asym --calibration "$calibration"
bundle mixture-4.5 --calibration "$calibration" --bits 4.5
bundle mixture-5 --calibration "$calibration" --bits 5
pilotfish evaluate-weights "${bundles[@]}" --target "$folder/plain" \
  --text "$text" --tokens "$tokens" --html "$folder/weights.html" --json "$folder/weights.json"
