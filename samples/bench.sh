#!/usr/bin/env bash
# The commands behind the CPU's numbers in BENCHMARKS.md: bash samples/bench.sh BUNDLE [PROMPTS.jsonl]
# The rows beside other engines need those engines: python samples/bench_peers.py --help, bench_lookup.py --help
# The 1.1B shape: python samples/bench_shapes.py --help; its passes by number of rows: python samples/bench_kernels.py
# PROMPTS.jsonl holds one {"category": ..., "prompt": ...} a line. Writes bench-*.json into the current folder.
set -euo pipefail
bundle=$1

pilotfish doctor
pilotfish bench "$bundle" --prompt-tokens 128 --new-tokens 128 --threads 2 --repeats 7 --json bench-fixed.json
pilotfish bench "$bundle" --prompts "$(dirname "${BASH_SOURCE[0]}")/copy_heavy.jsonl" --new-tokens 128 --threads 2 --json bench-copy.json
if [ $# -gt 1 ]; then
  pilotfish bench "$bundle" --prompts "$2" --new-tokens 128 --threads 2 --repeats 1 --json bench-prompts.json
  search="$(dirname "${BASH_SOURCE[0]}")/search_settings.py"
  python "$search" "$bundle" --prompts "$2" --threads 2 --per-category 5 --calibration refresh --json bench-search.json
  python "$search" "$bundle" --prompts "$2" --threads 2 --length --json bench-length.json
fi
