#!/usr/bin/env bash
# pilotfish beside llama.cpp, OpenVINO GenAI, ONNX Runtime GenAI and transformers: bash samples/peers/run.sh BUNDLE GGUF [DRAFT_GGUF]
# Run it with the Python that has pilotfish. Each engine gets a virtual environment below build/peers, at the versions
# below; llama.cpp is compiled by pip. Writes peers.html and peers.json into the current folder.
set -uo pipefail
[ $# -ge 2 ] || { sed -n 2,4p "${BASH_SOURCE[0]}" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bundle=$1 gguf=$2 draft=${3:-}
engines=${PEERS:-build/peers}
mkdir -p "$engines"

install() { # folder, packages
  local folder=$engines/$1
  shift
  [ -e "$folder/installed" ] && return
  python3 -m venv "$folder" && "$folder/bin/python" -m pip install --quiet "$@" && touch "$folder/installed" && return
  echo "could not install $*: it is left out" >&2
  rm -rf "$folder"
}

install llama_cpp llama-cpp-python==0.3.36
install openvino openvino-genai==2026.4.1.0
install transformers torch==2.13.0 transformers==5.24.0 gguf==0.19.0 accelerate==1.15.0
install ort_genai onnxruntime-genai==0.18.0 onnx==1.23.0 onnx-ir torch==2.13.0 transformers==5.24.0 gguf==0.19.0 accelerate==1.15.0
if [ -e "$engines/ort_genai/installed" ] && [ ! -e "$engines/ort_genai/model/genai_config.json" ]; then
  python=$engines/ort_genai/bin/python checkpoint=$engines/ort_genai/checkpoint
  { "$python" "$here/to_checkpoint.py" "$gguf" "$checkpoint" && "$python" -m onnxruntime_genai.models.builder \
    -i "$checkpoint" -o "$engines/ort_genai/model" -p int4 -e cpu -c "$engines/ort_genai/cache" \
    --extra_options hf_token=false; } || echo "ONNX Runtime GenAI's builder failed: it is left out" >&2
fi
exec python "$here/compare.py" "$bundle" --gguf "$gguf" ${draft:+--draft-gguf "$draft"} --engines "$engines" \
  --html peers.html --json peers.json
