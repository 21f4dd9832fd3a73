"""Engine's arguments about drafting, checked, and where calibrations are kept."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pilotfish.bindings import Acceptance, Calibration, InvalidArgumentError

from .files import why_not_writable
from .memory import parse_bytes
from .option_checks import check_int, check_path, require, shown

LEAST_WINDOW = 64
MOST_WINDOW = 2**22
LEAST_STORE_BYTES = 2**12
MOST_STORE_BYTES = 2**30
CALIBRATIONS = tuple(mode.name.lower() for mode in Calibration)
ACCEPTANCES = tuple(rule.name.lower() for rule in Acceptance)


class SpeculationOptions(TypedDict):
    """Members of EngineOptions."""

    acceptance: Acceptance
    calibration: Calibration
    calibration_folder: str
    draft_window: int | None
    lookup_store: str | None
    lookup_store_bytes: int | None


@dataclass(frozen=True, slots=True)
class SpeculationArguments:
    """Arguments of Engine as they are given."""

    calibration: str = "kept"
    draft_window: int | None = None
    lookup_store: str | Path | None = None
    lookup_store_size: int | str | None = None
    acceptance: str = "equal"

    def options(self) -> SpeculationOptions:
        """As the library takes them.

        Raises:
            InvalidArgumentError: a value outside its range.
        """
        for name, names in (("calibration", CALIBRATIONS), ("acceptance", ACCEPTANCES)):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in names:
                raise InvalidArgumentError(f"{name} is {shown(value)}, must be one of {', '.join(names)}")
        window = self.draft_window
        if window is not None:
            check_int("draft_window", window, 0, MOST_WINDOW)
            limit = f"0 or in {LEAST_WINDOW}..{MOST_WINDOW}"
            require("draft_window", window, window == 0 or window >= LEAST_WINDOW, limit)
        size = None if self.lookup_store_size is None else parse_bytes(self.lookup_store_size)
        if size is not None and not LEAST_STORE_BYTES <= size <= MOST_STORE_BYTES:
            raise InvalidArgumentError(
                f"lookup_store_size is {size}, must be in {LEAST_STORE_BYTES}..{MOST_STORE_BYTES} bytes"
            )
        if size is not None and self.lookup_store is None:
            raise InvalidArgumentError(f"lookup_store_size is {size}, but no lookup_store is named")
        store = None if self.lookup_store is None else str(check_path("lookup_store", self.lookup_store, "a file"))
        if store is not None and (reason := why_not_writable(store, makes_folders=True)):
            raise InvalidArgumentError(f"lookup_store {shown(store)} cannot be written: {reason}")
        return SpeculationOptions(
            acceptance=Acceptance[self.acceptance.upper()],
            calibration=Calibration[self.calibration.upper()],
            calibration_folder=str(cache_folder()),
            draft_window=window,
            lookup_store=store,
            lookup_store_bytes=size,
        )


def cache_folder() -> Path:
    """The user's folder for what pilotfish can make anew: XDG_CACHE_HOME or ~/.cache, and "pilotfish" below it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "pilotfish"
