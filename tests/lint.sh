#!/usr/bin/env bash
# Format, lint and types of everything, with the tools of the extra "lint" and the packages that the code imports.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# mypy does not run import hooks: this folder shows it the packages under their import name.
mkdir -p build/typing/pilotfish
for package in exporter runtime bindings; do ln -sfn "../../../$package" "build/typing/pilotfish/$package"; done
for file in __init__.py __main__.py py.typed; do ln -sfn "../../../native/package/$file" "build/typing/pilotfish/$file"; done

ruff check .
ruff format --check .
mypy
git ls-files '*.c' '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format --style=file:native/.clang-format --dry-run -Werror
