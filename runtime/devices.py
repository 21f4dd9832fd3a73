"""Devices as users name them: "cpu", "cuda" and "cuda:1"."""

from __future__ import annotations

import re
from typing import NamedTuple

from pilotfish.bindings import Device, InvalidArgumentError, limits

from .option_checks import shown

_CUDA = re.compile(r"cuda(?::(\d{1,4}))?")


class NamedDevice(NamedTuple):
    """A kind of device, and which one of them: 0 for the CPU."""

    kind: Device
    number: int

    @property
    def extra(self) -> str:
        """The extra of this package that brings what the device needs."""
        return self.kind.name.lower()


def parse_device(name: str) -> NamedDevice:
    """The device of a name; InvalidArgumentError if it is none. Whether the machine has it shows when it is opened."""
    if isinstance(name, str) and name == "cpu":
        return NamedDevice(Device.CPU, 0)
    match = _CUDA.fullmatch(name) if isinstance(name, str) else None
    if match and (number := int(match[1] or 0)) <= limits.MOST_DEVICE_INDEX:
        return NamedDevice(Device.CUDA, number)
    raise InvalidArgumentError(
        f"device is {shown(name)}, must be 'cpu', 'cuda' or, to choose one of several GPUs, 'cuda:1'"
    )
