#!/usr/bin/env bash
# One page about this device and a bundle: bash samples/device_report.sh BUNDLE [PAGE.html] [--device cuda, --threads 2 ...]
# Runs doctor, plan, verify and bench, which takes about four minutes for the default bundle on two cores.
# Options after the page go to verify and bench. The exit code is 1 where the bundle is not lossless here.
set -euo pipefail
[ $# -ge 1 ] || { sed -n 2,4p "${BASH_SOURCE[0]}" >&2; exit 2; }
bundle=$1 page=${2:-device-report.html}
shift $(($# < 2 ? $# : 2))
python -m pilotfish.runtime.report.device_page --check "$page" # before the minutes, not after them
numbers=$(mktemp -d)
trap 'rm -rf "$numbers"' EXIT

python -m pilotfish doctor --json "$numbers/doctor.json"
python -m pilotfish plan "$bundle" --json "$numbers/plan.json"
lossless=0
python -m pilotfish verify "$bundle" "$@" --json "$numbers/verify.json" || lossless=$?
[ -s "$numbers/verify.json" ] || exit "$lossless"
python -m pilotfish bench "$bundle" "$@" --json "$numbers/bench.json"
python -m pilotfish.runtime.report.device_page "$numbers"/{doctor,plan,verify,bench}.json "$page"
echo "wrote $page"
exit "$lossless"
