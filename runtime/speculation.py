"""Engine's arguments about drafting, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from pilotfish.bindings import Acceptance, Calibration, InvalidArgumentError, limits
from pilotfish.bindings.operating_system import cache_folder

from .files import why_not_writable
from .memory import parse_bytes
from .option_checks import check_int, check_path, require, shown

if TYPE_CHECKING:
    from pathlib import Path

CALIBRATIONS = tuple(mode.name.lower() for mode in Calibration)
ACCEPTANCES = tuple(rule.name.lower() for rule in Acceptance)
DEFAULT_CALIBRATION = Calibration(limits.ENGINE.calibration).name.lower()
DEFAULT_ACCEPTANCE = Acceptance(limits.ENGINE.acceptance).name.lower()
REJECTION = Acceptance.REJECTION.name.lower()


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

    calibration: str = DEFAULT_CALIBRATION
    draft_window: int | None = None
    lookup_store: str | Path | None = None
    lookup_store_size: int | str | None = None
    acceptance: str = DEFAULT_ACCEPTANCE

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
            least, most = limits.LEAST_DRAFT_WINDOW, limits.MOST_CONTEXT
            check_int("draft_window", window, 0, most)
            require("draft_window", window, window == 0 or window >= least, f"0 or in {least}..{most}")
        size = None if self.lookup_store_size is None else parse_bytes(self.lookup_store_size)
        least, most = limits.LEAST_LOOKUP_STORE_BYTES, limits.MOST_LOOKUP_STORE_BYTES
        if size is not None and not least <= size <= most:
            raise InvalidArgumentError(f"lookup_store_size is {size}, must be in {least}..{most} bytes")
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
