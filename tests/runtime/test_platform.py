"""The operating system is named in one folder of the library and in one module of Python, and nowhere else."""

import re
from pathlib import Path

import pytest

from pilotfish.bindings import operating_system

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ("native/src", "native/ops", "native/cpu", "native/cuda")
NATIVE_LAYER = "native/src/base/platform/"
SYSTEM_HEADERS = (
    r"sys/|unistd|fcntl|dlfcn|sched|malloc|pthread|signal|spawn|poll|termios|mach|windows|io\.h|direct|process"
)
SYSTEM_CALL = (
    r"\b(dlopen|dlsym|dladdr|mmap|madvise|munmap|setenv|putenv|getpid|fsync|flock|LoadLibrary\w*|VirtualAlloc)\("
)
SYSTEM_NAME = r"\b(__linux__|__unix__|__APPLE__|__GLIBC__|_WIN32|_WIN64|_MSC_VER|O_BINARY|O_NOFOLLOW)\b"
SYSTEM_PLACE = r'"(/proc|/sys|/dev)/|"lib\w+\.so|\.dll"|\.dylib"'
IN_NATIVE = re.compile(f"#include <({SYSTEM_HEADERS})|{SYSTEM_CALL}|{SYSTEM_NAME}|{SYSTEM_PLACE}")

PYTHON = ("bindings", "runtime", "exporter", "native/package")
PYTHON_LAYER = "bindings/operating_system.py"
GPU_LIBRARIES = "runtime/cuda_libraries.py"  # CUDA's own libraries, by the names that they have on Linux
IN_PYTHON = re.compile(
    r"\bsys\.platform\b|\bos\.name\b|\bplatform\.(system|release|uname)\b|sched_getaffinity|\bos\.sysconf\b"
    r"|\bSIGHUP\b|\bSIGKILL\b|\bO_(CLOEXEC|NONBLOCK|NOFOLLOW|BINARY)\b"
    r"|\bimport (fcntl|msvcrt|readline|resource|termios|pwd)\b"
    r"|CDLL\(None|[\"'](/proc|/sys|/dev)/|[\"'/]lib\w+\.so\b|XDG_CACHE_HOME\", |LOCALAPPDATA"
)


def offences(folders: tuple[str, ...], suffixes: set[str], pattern: re.Pattern[str]) -> dict[str, list[str]]:
    """Of each file, the lines that name an operating system."""
    found: dict[str, list[str]] = {}
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes):
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if pattern.search(line)]
        if lines:
            found[path.relative_to(ROOT).as_posix()] = lines
    return found


def test_the_library_names_an_operating_system_in_one_folder() -> None:
    found = offences(NATIVE, {".h", ".cpp", ".cu", ".cuh"}, IN_NATIVE)
    assert {name: lines for name, lines in found.items() if not name.startswith(NATIVE_LAYER)} == {}
    assert len(found) >= 8, "the pattern finds the layer itself"


def test_python_names_an_operating_system_in_one_module() -> None:
    found = offences(PYTHON, {".py"}, IN_PYTHON)
    assert sorted(found) == sorted([PYTHON_LAYER, GPU_LIBRARIES])


@pytest.mark.parametrize(
    ("system", "library", "ort"),
    [
        ("linux", "libpilotfish.so", "libonnxruntime.so.1.32.0"),
        ("macos", "libpilotfish.dylib", "libonnxruntime.1.32.0.dylib"),
        ("windows", "pilotfish.dll", "onnxruntime.dll"),
    ],
)
def test_libraries_have_the_systems_names(monkeypatch: pytest.MonkeyPatch, system: str, library: str, ort: str) -> None:
    monkeypatch.setattr(operating_system, "IS_MACOS", system == "macos")
    monkeypatch.setattr(operating_system, "IS_WINDOWS", system == "windows")
    monkeypatch.setattr(operating_system, "ORT_LIBRARIES", "onnxruntime.dll")
    assert operating_system.library_name("pilotfish") == library
    assert operating_system.ort_library_name("1.32.0") == ort


def test_names_of_files_are_no_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", ".", "..", "a/b", "a\0"):
        assert not operating_system.is_file_name(name)
    assert operating_system.is_file_name("a:b\\c")
    monkeypatch.setattr(operating_system, "IS_WINDOWS", True)
    assert not operating_system.is_file_name("a:b")
    assert not operating_system.is_file_name("a\\b")


def test_a_lock_keeps_others_out(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as held, (tmp_path / "lock").open("w") as other:
        operating_system.lock_file(held.fileno())
        with pytest.raises(BlockingIOError):
            operating_system.lock_file(other.fileno())


def test_two_folders_change_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (one / "file").touch()
    if not operating_system.exchange_paths(one, other):
        pytest.skip("this file system cannot exchange folders")
    assert (other / "file").exists()
    assert not (one / "file").exists()
    with pytest.raises(OSError, match="nowhere"):
        operating_system.exchange_paths(one, tmp_path / "nowhere")


def test_memory_is_counted() -> None:
    memory, process = operating_system.machine_memory(), operating_system.process_memory()
    assert memory.total >= memory.available > 0
    assert memory.total > process.peak >= 0.99 * process.now > 2**20
