#!/usr/bin/env bash
# Builds the library with sanitizers: sanitized_build.sh address|threads [TARGET...]. The native tests and the binding of
# Python share one build. Debug for the assertions; -O1 compiles in half the time of -O2, and the tests take no longer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kind=$1
shift
if [ "$kind" = address ]; then
  build=build/sanitize options=(-DPILOTFISH_SANITIZE=ON -DPILOTFISH_TESTS=ON)
else
  build=build/sanitize-threads options=(-DPILOTFISH_THREAD_SANITIZER=ON)
fi
cmake -S native -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g" "${options[@]}" \
  -DPILOTFISH_UNITY=ON "-DPython_EXECUTABLE=$(command -v python)" >/dev/null
cmake --build "$build" ${1:+--target "$@"}
