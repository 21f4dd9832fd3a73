#!/usr/bin/env bash
# Every hostile bundle, and every kind of good one, with the lowest versions that pyproject.toml allows at run time.
# Needs what tests/run.sh has installed. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tested=build/test-venv/bin/python
venv=build/oldest-venv
if [ ! -x "$venv/bin/python" ]; then "$tested" -m venv --without-pip "$venv"; fi
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# The lowest versions come first on the path; all else is what the other tests have.
if ! "$venv/bin/python" -c 'import onnxruntime' 2>/dev/null; then
  "$tested" tests/lowest_versions.py | xargs "$tested" -m pip install --quiet --upgrade --target "$site" 2>&1 |
    grep -v -e "dependency resolver" -e "which is incompatible" || true
fi
"$tested" -c 'import sys; print(*(p for p in sys.path if p.endswith("site-packages")), sep="\n")' > "$site/tested.pth"

rm -rf build/prepared-bundles  # of an earlier run
"$tested" tests/prepared_bundles.py build/prepared-bundles
echo "tests with $("$tested" tests/lowest_versions.py | tr '\n' ' ')"
PILOTFISH_PREPARED_BUNDLES="$PWD/build/prepared-bundles" "$venv/bin/python" -m pytest -p no:cacheprovider \
  tests/e2e/test_hostile_bundles.py "$@"
