"""The fork server open_bundle, and what a child's report says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from pilotfish.runtime.ort import ort_for

SANITIZED = Path(__file__).resolve().parents[2] / "build" / "sanitize"
_OPTIONS = {
    # Beyond max_allocation_size_mb is beyond what any plan of a bundle here allows. ONNX Runtime is not built with the
    # sanitizers: it has containers, and global objects of the same names, of its own.
    "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:detect_container_overflow=0:max_allocation_size_mb=512:"
    "allocator_may_return_null=0:quarantine_size_mb=8",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
_OWN_FRAME = re.compile(r"#\d+ 0x[0-9a-f]+ in pilotfish::.*/(\S+:\d+)")


class Outcome(NamedTuple):
    """How a child ended, and the kind of failure that its report shows, empty where it did not fail."""

    ending: str
    failure: str
    report: str


class Server:
    """One process whose children try bundles."""

    def __init__(self, seed: Path, report: Path, binary: Path = SANITIZED / "open_bundle") -> None:
        self._report = report
        self._command = [str(binary), str(ort_for("cpu")), str(seed), str(report)]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, **_OPTIONS, "MALLOC_ARENA_MAX": "1"}
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, bundle: Path) -> Outcome:
        """What becomes of a bundle."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{bundle}\n")
        self._process.stdin.flush()
        ending = self._process.stdout.readline().strip()
        if not ending:
            raise RuntimeError(f"{self._command[0]} ended with status {self._process.wait()}")
        report = self._report.read_text(encoding="utf-8", errors="replace")
        return Outcome(ending, failure_of(ending, report), report)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def failure_of(ending: str, report: str) -> str:
    """The kind of failure: the sanitizer's or the signal's name, and where."""
    if ending == "refused":
        return "PF_INTERNAL: " + report.split(":", 1)[-1].strip()[:60] if report.startswith("status -99") else ""
    if ending == "generated":
        return ""
    summary = re.search(r"SUMMARY: (.+)", report)
    if summary and "ONNX Runtime opens" in summary.group(1):
        return "ONNX Runtime opens a file of its own"
    undefined = re.search(r"([\w/.]+:\d+):\d+: runtime error: (.{0,50})", report)
    if undefined:
        return f"undefined: {Path(undefined.group(1)).name} {undefined.group(2)}"
    kind = re.search(r"ERROR: AddressSanitizer:? ([\w-]+(?: allocation)?)", report)
    where = _OWN_FRAME.search(report)
    return f"{ending}: {kind.group(1)} {where.group(1) if where else ''}".strip() if kind else ending
