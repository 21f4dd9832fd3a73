"""Engine's arguments about how a bundle is loaded, checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from pilotfish.bindings import InvalidArgumentError, VerifyHashes, limits

from .option_checks import require, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotfish.bindings import LoadStage
    from pilotfish.bindings.records import Progress

VERIFY_HASHES = tuple(rule.name.lower() for rule in VerifyHashes)
DEFAULT_VERIFY_HASHES = VerifyHashes(limits.ENGINE.verify_hashes).name.lower()


class LoadOptions(TypedDict):
    """Members of EngineOptions."""

    verify_hashes: VerifyHashes
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class LoadArguments:
    """Engine's arguments about how a bundle is loaded, as they are given."""

    verify_hashes: str = DEFAULT_VERIFY_HASHES
    progress: Callable[[str, int, int], object] | None = None

    def options(self) -> LoadOptions:
        """As the library takes them.

        Raises:
            InvalidArgumentError: a value outside its range.
        """
        rule = self.verify_hashes
        if not isinstance(rule, str) or rule not in VERIFY_HASHES:
            raise InvalidArgumentError(f"verify_hashes is {shown(rule)}, must be one of {', '.join(VERIFY_HASHES)}")
        require("progress", self.progress, self.progress is None or callable(self.progress), "a function")
        told = None if self.progress is None else partial(_tell, self.progress)
        return LoadOptions(verify_hashes=VerifyHashes[rule.upper()], progress=told)


def _tell(progress: Callable[[str, int, int], object], stage: LoadStage, done: int, total: int) -> None:
    progress(stage.name.lower(), done, total)
