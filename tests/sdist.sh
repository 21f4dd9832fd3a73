#!/usr/bin/env bash
# Builds a source distribution into build/sdist and compares it with the checkout: all that a build reads is in it, so
# that it builds as the checkout does. samples/build_wheels.sh makes its wheels from it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rm -rf build/sdist
python -m build --sdist --no-isolation --outdir build/sdist . >/dev/null
archive=$(echo build/sdist/pilotfish-*.tar.gz)
tar -tzf "$archive" | sed 's|^[^/]*/||' | sort >build/sdist/found
git ls-files bindings exporter native runtime pyproject.toml README.md LICENSE | sort >build/sdist/wanted
if missing=$(comm -13 build/sdist/found build/sdist/wanted | grep .); then
  echo "the source distribution lacks: $missing" >&2
  exit 1
fi
bytes=$(wc -c <"$archive")
if [ "$bytes" -gt 5000000 ]; then echo "the source distribution has $bytes bytes, more than 5 MB" >&2; exit 1; fi
echo "$archive: $(wc -l <build/sdist/found) files, $bytes bytes"
