"""Kernels slower than the processor's are reported, by `pilotfish doctor` and where an engine is opened."""

import platform
import re
from pathlib import Path

import pytest

from pilotfish.bindings import calls
from pilotfish.runtime.kernels import slow_kernels, warn_of_slow_kernels


def test_the_best_kernels_are_those_of_the_flags_that_the_system_lists() -> None:
    """The library asks the processor itself; here the answer is compared with what Linux read from it."""
    if platform.machine() != "x86_64":
        pytest.skip("the flags of x86 are compared")
    flags = set(re.findall(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[0].split())
    avx2 = {"avx2", "fma", "f16c", "popcnt"} <= flags
    avx512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"} <= flags
    assert calls.best_cpu_kernels() == ("avx512vnni" if avx2 and avx512 else "avx2" if avx2 else "portable")


def test_the_best_kernels_are_no_matter_of_concern(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(calls, "best_cpu_kernels", lambda: "avx2")
    monkeypatch.setattr(calls, "cpu_kernels", lambda: "avx2")
    warn_of_slow_kernels()
    assert slow_kernels() is None
    assert len(recwarn) == 0


@pytest.mark.parametrize(
    ("running", "best", "said"),
    [("avx2", "avx512vnni", "avx2, as PILOTFISH_CPU says"), ("portable", "portable", "many times slower")],
)
def test_slower_kernels_are_named(monkeypatch: pytest.MonkeyPatch, running: str, best: str, said: str) -> None:
    monkeypatch.setattr(calls, "best_cpu_kernels", lambda: best)
    monkeypatch.setattr(calls, "cpu_kernels", lambda: running)
    with pytest.warns(RuntimeWarning, match=said):
        warn_of_slow_kernels()
