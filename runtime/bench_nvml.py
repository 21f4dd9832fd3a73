"""An NVIDIA GPU's energy counter, temperature, clock and throttling, through the driver's NVML library."""

from __future__ import annotations

import ctypes
import os

_SUCCESS = 0
_TEMPERATURE_OF_GPU = 0
_CLOCK_OF_SM = 1
# nvmlClocksEventReasonSwThermalSlowdown, HwSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown
_SLOWDOWN = 0x20 | 0x08 | 0x40 | 0x80


class Gpu:
    """One GPU. Each call is None where the driver does not tell."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        """Keep the driver's handle, which lives as long as the process."""
        self._library = library
        self._handle = handle

    def joules(self) -> float | None:
        """Energy since the driver was loaded."""
        value = ctypes.c_ulonglong()
        told = self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(value))
        return value.value / 1e3 if told == _SUCCESS else None

    def temperature_c(self) -> float | None:
        """Of the chip."""
        value = ctypes.c_uint()
        told = self._library.nvmlDeviceGetTemperature(self._handle, _TEMPERATURE_OF_GPU, ctypes.byref(value))
        return float(value.value) if told == _SUCCESS else None

    def clock_mhz(self) -> float | None:
        """Of the multiprocessors."""
        value = ctypes.c_uint()
        told = self._library.nvmlDeviceGetClockInfo(self._handle, _CLOCK_OF_SM, ctypes.byref(value))
        return float(value.value) if told == _SUCCESS else None

    def is_throttled(self) -> bool | None:
        """Whether heat or power slows it down now."""
        value = ctypes.c_ulonglong()
        told = self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(value))
        return bool(value.value & _SLOWDOWN) if told == _SUCCESS else None


def open_gpu(number: int) -> Gpu | None:
    """The GPU that CUDA calls ``number``; None where there is no NVML, or where its number there is not certain."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if library.nvmlInit_v2() != _SUCCESS:
        return None
    index = _nvml_index(library, number)
    handle = ctypes.c_void_p()
    if index is None or library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != _SUCCESS:
        return None
    return Gpu(library, handle)


def _nvml_index(library: ctypes.CDLL, number: int) -> int | None:
    """NVML orders GPUs by their bus and shows all; CUDA orders them by speed, and those that its variables name."""
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return None
    if count.value == 1:
        return 0
    has_names = "CUDA_VISIBLE_DEVICES" in os.environ
    return number if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" and not has_names else None
