"""What a device tells about itself while it is measured: energy, temperature, clocks, throttling, and other programs.

A value that the device does not tell is None, and never guessed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.bindings import Device
from pilotfish.bindings.operating_system import CLOCK_TICKS

from .bench_nvml import Gpu, open_gpu
from .devices import parse_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BUSY_SHARE = 0.05
"""From here on others' use of the processors is said."""
_PACKAGE = re.compile(r"intel-rapl:\d+")  # the domain of a socket; intel-rapl:0:1 is a part of it


@dataclass(frozen=True, slots=True)
class Reading:
    """Sensors and counters at a moment."""

    temperature_c: float | None
    clock_mhz: float | None
    throttle_events: int | None
    """Since the machine was started; of a GPU 1 while it slows down, 0 while not."""
    seconds: float
    busy_seconds: float
    """Of all processors, by all programs, and taken by a hypervisor."""
    own_seconds: float
    """Of this process."""


class Sensors:
    """The sensors of the device that an engine runs on."""

    def __init__(self, device: str = "cpu", *, sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> None:
        """Find what there is; ``sys`` and ``proc`` are where the kernel shows it."""
        chosen = parse_device(device)
        self._sys, self._proc = sys, proc
        self._gpu: Gpu | None = open_gpu(chosen.number) if chosen.kind is Device.CUDA else None
        self._counts_host = chosen.kind is Device.CPU
        self._domains = self._find_domains() if self._counts_host else {}

    @property
    def energy_source(self) -> str | None:
        """Either "RAPL" or "NVML"; None: this device does not tell."""
        if self._domains:
            return "RAPL"
        return "NVML" if self._gpu is not None and self._gpu.joules() is not None else None

    def joules(self) -> tuple[float, ...]:
        """Counters of energy, for joules_since(); empty where there are none."""
        if self._gpu is not None:
            value = self._gpu.joules()
            return () if value is None else (value,)
        return tuple(value / 1e6 for value in _numbers(folder / "energy_uj" for folder in self._domains))

    def joules_since(self, before: tuple[float, ...]) -> float | None:
        """Energy since a reading of joules(); None where the device does not tell."""
        now = self.joules()
        if not now or len(now) != len(before):
            return None
        ranges = tuple(self._domains.values()) or (0.0,)
        if len(now) != len(ranges):  # a counter that cannot be read any more
            return None
        # A counter begins again at its range.
        pairs = zip(now, before, ranges, strict=True)
        return sum(after - first + (most if after < first else 0.0) for after, first, most in pairs)

    def read(self) -> Reading:
        """The state now."""
        times = os.times()
        if self._gpu is not None:
            throttled = self._gpu.is_throttled()
            state = (self._gpu.temperature_c(), self._gpu.clock_mhz(), None if throttled is None else int(throttled))
        elif self._counts_host:
            state = (self._temperature(), self._clock(), self._throttle_events())
        else:
            state = (None, None, None)
        return Reading(*state, time.perf_counter(), self._busy_seconds(), times.user + times.system)

    def _find_domains(self) -> Mapping[Path, float]:
        """Folders of sockets whose energy may be read, with the joules at which the counter begins again."""
        found = {}
        for folder in sorted(self._sys.glob("class/powercap/intel-rapl:*")):
            values = list(_numbers([folder / "energy_uj", folder / "max_energy_range_uj"]))
            if _PACKAGE.fullmatch(folder.name) and len(values) == 2:  # noqa: PLR2004 - both
                found[folder] = values[1] / 1e6
        return found

    def _temperature(self) -> float | None:
        found = max(_numbers(self._sys.glob("class/thermal/thermal_zone*/temp")), default=None)
        return None if found is None else found / 1e3

    def _clock(self) -> float | None:
        """Mean of the cores, MHz."""
        values = list(_numbers(self._sys.glob("devices/system/cpu/cpu*/cpufreq/scaling_cur_freq")))
        return sum(values) / 1e3 / len(values) if values else None

    def _throttle_events(self) -> int | None:
        pattern = "devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"
        values = list(_numbers(self._sys.glob(pattern)))
        return int(sum(values)) if values else None

    def _busy_seconds(self) -> float:
        """First line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
        fields = [int(field) for field in (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        return (sum(fields) - fields[3] - fields[4]) / CLOCK_TICKS


def compare_readings(before: Reading, after: Reading) -> dict[str, float | bool | int | None]:
    """The entry ``conditions`` of a report: how the machine was from one reading to another."""
    cores = os.cpu_count() or 1
    others = (after.busy_seconds - before.busy_seconds) - (after.own_seconds - before.own_seconds)
    share = max(0.0, others) / (cores * max(after.seconds - before.seconds, 1e-9))
    told = before.throttle_events is not None and after.throttle_events is not None
    return {
        "busy_share_of_others": share,
        "is_busy": share > BUSY_SHARE,
        "load_average": os.getloadavg()[0],
        "temperature_c": after.temperature_c,
        "temperature_before_c": before.temperature_c,
        "clock_mhz": after.clock_mhz,
        "throttled": _has_throttled(before, after) if told else None,
    }


def _has_throttled(before: Reading, after: Reading) -> bool:
    assert before.throttle_events is not None  # noqa: S101
    assert after.throttle_events is not None  # noqa: S101
    return after.throttle_events > before.throttle_events or (after.throttle_events == before.throttle_events == 1)


def _numbers(paths: Iterable[Path]) -> Iterator[float]:
    """What files hold; those of sensors that fail now, which some do for a moment, are left out."""
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            yield float(path.read_text())
