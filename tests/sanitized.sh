#!/usr/bin/env bash
# The Python side of the library under sanitizers: tests and the hammer, with a library that is built with them.
#   bash tests/sanitized.sh          # address and undefined behaviour, in build/sanitize, which native tests share
#   bash tests/sanitized.sh threads  # the hammer under the thread sanitizer, in build/sanitize-threads; no part of CI
#   bash tests/sanitized.sh [threads] COMMAND...  # another command, such as python tests/hammer/hammer.py --seed 7
# It needs what tests/run.sh installs. ONNX Runtime and Python are not built with sanitizers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source build/test-venv/bin/activate

kind=address
if [ "${1:-}" = threads ]; then kind=threads && shift; fi
if [ "$kind" = address ]; then build=build/sanitize; else build=build/sanitize-threads; fi
bash tests/sanitized_build.sh "$kind" pilotfish _ffi

# What is to be exported comes first, without sanitizers: torch takes minutes with them.
python tests/prepared_bundles.py build/prepared-bundles
python tests/hammer/hammer.py --requests 0

# The package as it is installed, but with the library and the binding of that build.
package=$build/package/pilotfish
rm -rf "$build/package"
mkdir -p "$package/bindings/include"
for folder in exporter runtime; do ln -s "$PWD/$folder" "$package/$folder"; done
for file in native/package/*.py; do ln -s "$PWD/$file" "$package/"; done
for file in bindings/*.py; do ln -s "$PWD/$file" "$package/bindings/"; done
cp "$build"/_ffi*.so "$build/libpilotfish.so" "$package/bindings/"
cp native/include/pilotfish.h "$package/bindings/include/"
export PYTHONPATH="$PWD/$build/package" PYTHONMALLOC=malloc OMP_NUM_THREADS=1

# The runtime of a sanitizer must be loaded before all else. Of ONNX Runtime it sees memory, but not its containers.
library_of() { c++ -print-file-name="lib$1.so"; }
if [ "$kind" = address ]; then
  export ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:detect_container_overflow=0:quarantine_size_mb=8
  export UBSAN_OPTIONS=print_stacktrace=1
  preload="$(library_of asan) $(library_of ubsan)"
else
  export TSAN_OPTIONS="suppressions=$PWD/tests/hammer/thread_sanitizer.txt:halt_on_error=0:exitcode=66"
  preload=$(library_of tsan)
fi
sanitized() { LD_PRELOAD="$preload" "$@"; }

if [ $# -gt 0 ]; then
  sanitized "$@"
  exit
fi
if [ "$kind" = address ]; then
  PILOTFISH_PREPARED_BUNDLES="$PWD/build/prepared-bundles" sanitized python -m pytest -q -p no:cacheprovider \
    tests/bindings tests/e2e/test_{async,batch,limits,prefix_cache,request_steps,streaming,structured}.py \
    tests/e2e/test_within_a_round.py
fi
sanitized python tests/hammer/hammer.py
