"""What a device tells: read from copies of the kernel's files and from a driver that is played."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from pilotfish.runtime.bench_nvml import Gpu, _nvml_index
from pilotfish.runtime.bench_sensors import Reading, Sensors, compare_readings

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, values: dict[str, object]) -> None:
    for name, value in values.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A machine that tells nothing but how its processors are used."""
    sys, proc = tmp_path / "sys", tmp_path / "proc"
    sys.mkdir()
    write(proc, {"stat": "cpu 100 0 50 800 20 0 0 30 0 0\ncpu0 100 0 50 800 20 0 0 30 0 0"})
    return sys, proc


def test_a_machine_that_does_not_tell(machine: tuple[Path, Path]) -> None:
    sensors = Sensors(sys=machine[0], proc=machine[1])
    assert sensors.energy_source is None
    assert sensors.joules_since(sensors.joules()) is None
    reading = sensors.read()
    assert (reading.temperature_c, reading.clock_mhz, reading.throttle_events) == (None, None, None)
    assert reading.busy_seconds == pytest.approx(1.8)  # 180 ticks: user, system and what a hypervisor took


def test_energy_of_all_sockets_over_the_counters_end(machine: tuple[Path, Path]) -> None:
    sys, proc = machine
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):  # the last is a part of the first
        write(sys / "class/powercap" / name, {"energy_uj": 9_000_000, "max_energy_range_uj": 10_000_000})
    sensors = Sensors(sys=sys, proc=proc)
    assert sensors.energy_source == "RAPL"
    before = sensors.joules()
    write(sys / "class/powercap", {"intel-rapl:0/energy_uj": 9_500_000, "intel-rapl:1/energy_uj": 1_000_000})
    assert sensors.joules_since(before) == pytest.approx(0.5 + 2.0)


def test_a_counter_that_cannot_be_read_any_more_tells_nothing(machine: tuple[Path, Path]) -> None:
    sys, proc = machine
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:2"):
        write(sys / "class/powercap" / name, {"energy_uj": 9_000_000, "max_energy_range_uj": 10_000_000})
    (sys / "class/powercap/intel-rapl:2/max_energy_range_uj").unlink()
    sensors = Sensors(sys=sys, proc=proc)
    before = sensors.joules()
    assert before == (9.0, 9.0)
    (sys / "class/powercap/intel-rapl:1/energy_uj").unlink()
    assert sensors.joules_since(before) is None
    assert sensors.joules_since(sensors.joules()) is None


def test_temperature_clock_and_throttling(machine: tuple[Path, Path]) -> None:
    sys, proc = machine
    write(sys, {"class/thermal/thermal_zone0/temp": 41000, "class/thermal/thermal_zone1/temp": "broken"})
    for cpu, clock in enumerate((2_000_000, 3_000_000)):
        folder = sys / f"devices/system/cpu/cpu{cpu}"
        write(folder, {"cpufreq/scaling_cur_freq": clock, "thermal_throttle/core_throttle_count": 2})
    sensors = Sensors(sys=sys, proc=proc)
    before = sensors.read()
    assert (before.temperature_c, before.clock_mhz, before.throttle_events) == (41.0, 2500.0, 4)
    assert compare_readings(before, sensors.read())["throttled"] is False
    write(sys, {"devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": 3})
    assert compare_readings(before, sensors.read())["throttled"] is True


def reading(*, seconds: float, busy: float, own: float) -> Reading:
    return Reading(None, None, None, seconds, busy, own)


def test_others_use_of_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    before = reading(seconds=0, busy=100, own=10)
    quiet = compare_readings(before, reading(seconds=10, busy=120.4, own=30))
    assert quiet["busy_share_of_others"] == pytest.approx(0.01)
    assert quiet["is_busy"] is False
    assert compare_readings(before, reading(seconds=10, busy=124, own=30))["is_busy"] is True
    assert quiet["throttled"] is None


class Driver:
    """Plays NVML: each call writes its value, or says that it is not supported."""

    def __init__(self, values: dict[str, int]) -> None:
        self.values = values

    def __getattr__(self, name: str) -> object:
        def call(*arguments: object) -> int:
            if name not in self.values:
                return 3
            arguments[-1]._obj.value = self.values[name]  # type: ignore[attr-defined]  # of ctypes.byref
            return 0

        return call


def test_a_gpu_that_tells_and_one_that_does_not() -> None:
    values = {
        "nvmlDeviceGetTotalEnergyConsumption": 12_500,
        "nvmlDeviceGetTemperature": 47,
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
    }
    gpu = Gpu(Driver(values), ctypes.c_void_p())  # type: ignore[arg-type]
    assert (gpu.joules(), gpu.temperature_c(), gpu.clock_mhz(), gpu.is_throttled()) == (12.5, 47.0, 1980.0, True)
    silent = Gpu(Driver({}), ctypes.c_void_p())  # type: ignore[arg-type]
    found = (silent.joules(), silent.temperature_c(), silent.clock_mhz(), silent.is_throttled())
    assert found == (None, None, None, None)


def test_the_number_of_a_gpu_is_certain_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    one, several = (Driver({"nvmlDeviceGetCount_v2": count}) for count in (1, 4))
    assert _nvml_index(one, 0) == 0  # type: ignore[arg-type]
    assert _nvml_index(several, 2) is None  # type: ignore[arg-type]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert _nvml_index(several, 2) == 2  # type: ignore[arg-type]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert _nvml_index(several, 0) is None  # type: ignore[arg-type]
