"""The installed library: one version, one stable ABI, nothing exported but the API."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from pilotfish.bindings import _ffi, calls, include_dir, library_path
from pilotfish.bindings.paths import compiler_flags


def test_header_library_and_package_are_one_version() -> None:
    header = (include_dir() / "pilotfish.h").read_text()
    version = re.findall(r'#define PF_VERSION "(.*)"', header)
    assert version == [calls.version()] == [calls.header_version()]


def test_the_extension_uses_the_stable_abi() -> None:
    assert str(_ffi.__file__).endswith("_ffi.abi3.so")


def test_only_the_api_is_exported() -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(library_path())], check=True, capture_output=True, text=True
    ).stdout
    symbols = {line.split()[-1] for line in listing.splitlines()}
    declared = set(re.findall(r"^PF_API .*?(pf_\w+)\(", (include_dir() / "pilotfish.h").read_text(), re.MULTILINE))
    assert declared <= symbols
    assert symbols - declared == {"RegisterCustomOps"}


def test_kernels_are_named() -> None:
    assert calls.cpu_kernels() in ("avx512vnni", "avx2", "i8mm", "dotprod", "neon", "portable")


def test_cores_are_counted() -> None:
    assert 1 <= calls.cpu_cores() <= len(os.sched_getaffinity(0))


def test_the_module_prints_the_compilers_flags() -> None:
    printed = subprocess.run([sys.executable, "-m", "pilotfish.bindings"], check=True, capture_output=True, text=True)
    assert printed.stdout.strip() == compiler_flags()
    assert str(include_dir()) in printed.stdout
