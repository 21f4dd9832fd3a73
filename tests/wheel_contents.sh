#!/usr/bin/env bash
# Looks into wheels, also into those of which nothing can be run here: bash tests/wheel_contents.sh WHEEL...
# The tag is the system's; the library exports what it shall and nothing else; Python's module exports its
# entry; both need the system's own libraries alone, on Linux with the tag's glibc. Debian: apt-get install llvm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "$*" >&2
  exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The functions of pilotfish.h, and the one that other programs' sessions of ONNX Runtime call.
api=$(sed -n 's/^PF_API .*\b\(pf_[a-z_0-9]*\)(.*/\1/p' native/include/pilotfish.h)
[ "$(wc -w <<<"$api")" -gt 10 ] || fail "no functions were found in pilotfish.h"
api=$(printf '%s\n' "$api" RegisterCustomOps | sort)

# expect FILE WHAT WANTED FOUND
expect() { [ "$3" = "$4" ] || fail "$1 $2:"$'\n'"$(diff <(printf '%s\n' "$3") <(printf '%s\n' "$4"))"; }

# shows PATTERN COMMAND...: whether the command prints it. A pipe into grep -q would break, and fail the command.
shows() { grep -q "$1" <<<"$("${@:2}")"; }

# needs FILE PATTERN: reads the names of the libraries that the file needs.
needs() {
  local found other
  found=$(cat)
  [ -n "$found" ] || fail "what $1 needs was not found"
  other=$(grep -vxE "$2" <<<"$found") || return 0
  fail "$1 needs $other"
}

# linux FOLDER: BASH_REMATCH has the tag's glibc and processor.
linux() {
  local library=$1/libpilotfish.so module=$1/_ffi.abi3.so glibc=2.${BASH_REMATCH[1]} file newest
  local -A machines=([x86_64]=X86-64 [aarch64]=AArch64)
  local machine=${machines[${BASH_REMATCH[2]}]}
  for file in "$library" "$module"; do
    shows "Machine: .*$machine\$" llvm-readelf --file-header "$file" || fail "$file is not for $machine"
    llvm-readelf --dynamic-table "$file" | sed -n 's/.*Shared library: \[\(.*\)\]/\1/p' |
      needs "$file" 'lib(c|m|dl|pthread|pilotfish)\.so(\.[0-9])?|ld-linux-[a-z0-9-]*\.so\.[0-9]'
    newest=$(llvm-readelf --version-info "$file" | sed -n 's/.*Name: GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1)
    printf '%s\n' "$newest" "$glibc" | sort --version-sort --check=quiet || fail "$file needs glibc $newest"
  done
  shows 'runpath: \[$ORIGIN\]' llvm-readelf --dynamic-table "$module" || fail "$module does not look beside itself"
  expect "$library" exports "$api" "$(llvm-nm --dynamic --defined-only --format=just-symbols "$library" | sort)"
  shows ' PyInit__ffi$' llvm-nm --dynamic --defined-only "$module" || fail "$module is no module of Python's"
}

macos() {
  local library=$1/libpilotfish.dylib module=$1/_ffi.abi3.so file
  for file in "$library" "$module"; do
    llvm-objdump --macho --private-headers "$file" >"$folder/headers"
    grep -q 'ARM64 ' "$folder/headers" || fail "$file is not for 64-bit Arm"
    grep -q LC_CODE_SIGNATURE "$folder/headers" || fail "$file is not signed, and would not be loaded"
    grep -q 'minos 11.0' "$folder/headers" || fail "$file is not for macOS 11"
    llvm-objdump --macho --dylibs-used "$file" | sed -n 's/^\t\(.*\) (compat.*/\1/p' |
      needs "$file" '/usr/lib/lib[^/]*\.dylib|@rpath/libpilotfish\.dylib|_ffi\.abi3\.so'
  done
  shows 'path @loader_path ' grep -A2 LC_RPATH "$folder/headers" || fail "$module does not look beside itself"
  # Zig's linker takes no list of symbols: its own two marks and libc++'s operators new and delete show too.
  expect "$library" exports "$api" "$(llvm-nm --extern-only --defined-only --format=just-symbols "$library" |
    sed 's/^_//' | grep -vxE '_mh_dylib_header|__dso_handle|_Zn[wa]m.*|_Zd[la]Pv.*' | sort)"
  shows ' _PyInit__ffi$' llvm-nm --extern-only --defined-only "$module" || fail "$module is no module of Python's"
}

windows() {
  local library=$1/pilotfish.dll module=$1/_ffi.pyd file
  for file in "$library" "$module"; do
    shows IMAGE_FILE_MACHINE_AMD64 llvm-readobj --file-headers "$file" || fail "$file is not for x86-64"
    llvm-readobj --needed-libs "$file" | sed -n 's/^  \(.*\.dll\)$/\1/Ip' |
      needs "$file" '(ADVAPI32|KERNEL32|python3|pilotfish|api-ms-win-crt-[a-z0-9-]*)\.dll'
  done
  expect "$library" exports "$api" "$(llvm-readobj --coff-exports "$library" | sed -n 's/^  Name: //p' | sort)"
  shows '^  Name: PyInit__ffi$' llvm-readobj --coff-exports "$module" || fail "$module is no module of Python's"
}

for wheel in "${@:?a wheel}"; do
  rm -rf "${folder:?}"/*
  python3 -m zipfile -e "$wheel" "$folder/wheel"
  [[ $wheel =~ -cp310-abi3-manylinux_2_([0-9]+)_(x86_64|aarch64) ]] || true
  case $wheel in
    *-cp310-abi3-manylinux_2_*) linux "$folder/wheel/pilotfish/bindings" ;;
    *-cp310-abi3-macosx_11_0_arm64.whl) macos "$folder/wheel/pilotfish/bindings" ;;
    *-cp310-abi3-win_amd64.whl) windows "$folder/wheel/pilotfish/bindings" ;;
    *) fail "$wheel has no tag that samples/build_wheels.sh gives" ;;
  esac
  echo "$wheel: $(wc -c <"$wheel") bytes, $(wc -w <<<"$api") functions, nothing needed but the system's libraries"
done
