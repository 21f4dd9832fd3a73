#!/usr/bin/env bash
# Looks into wheels for macOS and Windows, of which nothing can be run here: bash tests/wheel_contents.sh WHEEL...
# The tag is the system's; the library exports the functions of pilotfish.h and nothing else; Python's module exports its
# entry; both need the system's own libraries alone. Debian: apt-get install llvm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "$*" >&2
  exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
api=$(sed -n 's/^PF_API .*\b\(pf_[a-z_0-9]*\)(.*/\1/p' native/include/pilotfish.h | sort)
[ "$(wc -w <<<"$api")" -gt 10 ] || fail "no functions were found in pilotfish.h"

# expect FILE WHAT WANTED FOUND
expect() { [ "$3" = "$4" ] || fail "$1 $2:"$'\n'"$(diff <(printf '%s\n' "$3") <(printf '%s\n' "$4"))"; }

# needs FILE PATTERN: reads what the file needs.
needs() {
  local other
  other=$(grep -vxE "$2") || return 0
  fail "$1 needs $other"
}

macos() {
  local library=$1/libpilotfish.dylib module=$1/_ffi.abi3.so file
  for file in "$library" "$module"; do
    llvm-objdump --macho --private-headers "$file" >"$folder/headers"
    grep -q 'ARM64 ' "$folder/headers" || fail "$file is not for 64-bit Arm"
    grep -q LC_CODE_SIGNATURE "$folder/headers" || fail "$file is not signed, and would not be loaded"
    grep -q 'minos 11.0' "$folder/headers" || fail "$file is not for macOS 11"
    llvm-objdump --macho --dylibs-used "$file" | sed -n 's/^\t\(.*\) (compat.*/\1/p' |
      needs "$file" '/usr/lib/lib[^/]*\.dylib|@rpath/libpilotfish\.dylib'
  done
  grep -A2 LC_RPATH "$folder/headers" | grep -q 'path @loader_path ' || fail "$module does not look beside itself"
  expect "$library" exports "$api" "$(llvm-nm --extern-only --defined-only --format=just-symbols "$library" | sed 's/^_//' | sort)"
  llvm-nm --extern-only --defined-only "$module" | grep -q ' _PyInit__ffi$' || fail "$module is no module of Python's"
}

windows() {
  local library=$1/pilotfish.dll module=$1/_ffi.pyd file
  for file in "$library" "$module"; do
    llvm-readobj --file-headers "$file" | grep -q IMAGE_FILE_MACHINE_AMD64 || fail "$file is not for x86-64"
    llvm-readobj --needed-libs "$file" | grep -i '\.dll$' | tr -d ' ' |
      needs "$file" '(KERNEL32|kernel32|python3|pilotfish|api-ms-win-crt-[a-z0-9-]*)\.dll'
  done
  expect "$library" exports "$api" "$(llvm-readobj --coff-exports "$library" | sed -n 's/^  Name: //p' | sort)"
  llvm-readobj --coff-exports "$module" | grep -qx '  Name: PyInit__ffi' || fail "$module is no module of Python's"
}

for wheel in "${@:?a wheel}"; do
  rm -rf "${folder:?}"/*
  python3 -m zipfile -e "$wheel" "$folder/wheel"
  case $wheel in
    *-cp310-abi3-macosx_11_0_arm64.whl) macos "$folder/wheel/pilotfish/bindings" ;;
    *-cp310-abi3-win_amd64.whl) windows "$folder/wheel/pilotfish/bindings" ;;
    *) fail "$wheel has no tag of macOS or Windows that samples/build_wheels.sh gives" ;;
  esac
  echo "$wheel: $(wc -c <"$wheel") bytes, $(wc -w <<<"$api") functions, nothing needed but the system's libraries"
done
