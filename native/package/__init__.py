"""Lossless speculative decoding on one constrained device: ``from pilotfish import Engine``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.bindings import PilotfishError
    from pilotfish.runtime import Engine, Event, Result, Stats

__all__ = ["Engine", "Event", "PilotfishError", "Result", "Stats"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that the command is there to answer Ctrl-C before that."""
    if name not in __all__:
        raise AttributeError(f"module 'pilotfish' has no attribute {name!r}")
    if name == "PilotfishError":
        from pilotfish import bindings as module  # noqa: PLC0415 - that is the point
    else:
        from pilotfish import runtime as module  # type: ignore[no-redef]  # noqa: PLC0415
    return getattr(module, name)
