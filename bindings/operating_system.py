"""All that differs between operating systems, for Linux, macOS and Windows; nothing else names one.

GPUs and sensors are the exceptions: runtime/cuda_libraries.py and runtime/bench_nvml.py know the names that NVIDIA's
libraries have on Linux, where they run, and runtime/bench_sensors.py reads what Linux shows in /sys and /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import stat
import sys
from pathlib import Path
from typing import Any, NamedTuple

IS_WINDOWS = sys.platform == "win32"
IS_MACOS = sys.platform == "darwin"

ENDING_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What asks a process to end, beside Ctrl-C: Windows has no closed terminals."""
ORT_LIBRARIES = "onnxruntime.dll" if IS_WINDOWS else "libonnxruntime*.dylib" if IS_MACOS else "libonnxruntime.so.*"
"""ONNX Runtime's library in its wheel, as a pattern."""
CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
"""In a second, of the times of processors that Linux counts."""
_READ_ONLY = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"))

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux' renameat2
_CANNOT_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EPERM}  # the file system or the kernel does not know how


class Memory(NamedTuple):
    """Bytes of this machine."""

    total: int
    available: int
    """What programs may take before something is swapped out."""


class ProcessMemory(NamedTuple):
    """Bytes of this process that are in memory."""

    peak: int
    now: int


def library_name(name: str) -> str:
    """The file name of a shared library: libname.so, libname.dylib or name.dll."""
    if IS_WINDOWS:
        return f"{name}.dll"
    return f"lib{name}.dylib" if IS_MACOS else f"lib{name}.so"


def ort_library_name(version: str) -> str:
    """The name that ONNX Runtime's library of a version has in its wheel."""
    if IS_WINDOWS:
        return ORT_LIBRARIES
    return f"libonnxruntime.{version}.dylib" if IS_MACOS else f"libonnxruntime.so.{version}"


def link_flags(folder: Path, name: str) -> str:
    """Flags for a C compiler that link a library of a folder, and let programs find it there when they run."""
    run_path = "" if IS_WINDOWS else f" -Wl,-rpath,{folder}"
    return f"-L{folder}{run_path} -l{name}"


def describe_system() -> str:
    """The operating system, its version and the architecture."""
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def num_processors() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def huge_pages() -> str:
    """The kernel's transparent huge page mode (Linux): "always", "madvise", "never" or "unknown"."""
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists():
        return "unknown"
    return path.read_text(encoding="ascii").partition("[")[2].partition("]")[0]


def machine_memory() -> Memory:
    """The memory of this machine."""
    if IS_WINDOWS:
        return _windows_memory()
    if IS_MACOS:
        # What is free or can be had at once is no figure of the system's: half of it is a guess that tables show.
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Memory(total, total // 2)
    return Memory(*_kibibytes("/proc/meminfo", "MemTotal", "MemAvailable"))


def process_memory() -> ProcessMemory:
    """The memory that this process has taken: its largest resident set so far, and that of now."""
    if IS_WINDOWS:
        return _windows_process_memory()
    if IS_MACOS:
        import resource  # noqa: PLC0415 - Windows has no such module

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes here
        return ProcessMemory(peak, peak)
    return ProcessMemory(*_kibibytes("/proc/self/status", "VmHWM", "VmRSS"))


def cache_folder() -> Path:
    """The user's folder for what can be made anew: XDG_CACHE_HOME, LOCALAPPDATA on Windows, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(base).is_absolute() and IS_WINDOWS:
        base = os.environ.get("LOCALAPPDATA", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "pilotfish"


def is_file_name(name: str) -> bool:
    """Whether a name is one of a file in a folder, on this system, and no path to elsewhere."""
    separators = "/\\:\0" if IS_WINDOWS else "/\0"
    return name not in {"", ".", ".."} and not any(separator in name for separator in separators)


def open_file_itself(path: Path) -> int:
    """A descriptor to read a file with; links are refused, and nothing is waited for.

    Raises:
        OSError: it is a link, does not exist, or may not be read.
    """
    if IS_WINDOWS and stat.S_ISLNK(os.lstat(path).st_mode):
        raise OSError(f"{path} is a link")
    return os.open(path, os.O_RDONLY | _READ_ONLY)


def lock_file(descriptor: int) -> None:
    """Keep other processes from locking the file, until the descriptor is closed.

    Raises:
        BlockingIOError: another process has it locked.
    """
    if IS_WINDOWS:
        import msvcrt  # noqa: PLC0415 - only Windows has it

        windows: Any = msvcrt
        try:
            windows.locking(descriptor, windows.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(error.errno, error.strerror) from error
        return
    import fcntl  # noqa: PLC0415 - Windows has no such module

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def exchange_paths(one: Path, other: Path) -> bool:
    """Let two files or folders of one file system change places in one step (Linux); False where none can.

    Raises:
        OSError: the system can, but not with these.
    """
    rename = None if IS_WINDOWS else getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number not in _CANNOT_EXCHANGE:
        raise OSError(number, os.strerror(number), str(other))
    return False


def edit_input_lines() -> None:
    """Give input() line editing and a history, where the system does not by itself."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - importing it is what does it


def _kibibytes(file: str, *keys: str) -> list[int]:
    """Lines such as "MemTotal:  16384 kB", in bytes."""
    lines = dict(line.split(":", 1) for line in Path(file).read_text(encoding="utf-8").splitlines() if ":" in line)
    missing = [key for key in keys if key not in lines]
    if missing:
        raise RuntimeError(f"{file} has no line {missing[0]}")
    return [int(lines[key].split()[0]) * 1024 for key in keys]


def _windows_memory() -> Memory:
    names = ("total", "available", "total_page", "free_page", "total_virtual", "free_virtual", "free_extended")

    class Status(ctypes.Structure):
        _fields_ = (
            ("size", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            *((name, ctypes.c_uint64) for name in names),
        )

    status = Status(size=ctypes.sizeof(Status))
    windows: Any = ctypes
    if not windows.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise RuntimeError("GlobalMemoryStatusEx failed")
    return Memory(status.total, status.available)


def _windows_process_memory() -> ProcessMemory:
    names = ("peak", "now", "peak_paged", "paged", "peak_other", "other", "file", "peak_file")

    class Counters(ctypes.Structure):
        _fields_ = (
            ("size", ctypes.c_uint32),
            ("faults", ctypes.c_uint32),
            *((name, ctypes.c_size_t) for name in names),
        )

    counters = Counters(size=ctypes.sizeof(Counters))
    windows: Any = ctypes
    process = ctypes.c_void_p(-1)  # the pseudo-handle of this process
    if not windows.windll.kernel32.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.size):
        raise RuntimeError("K32GetProcessMemoryInfo failed")
    return ProcessMemory(counters.peak, counters.now)
