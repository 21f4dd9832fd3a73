"""Lossless speculative decoding on one constrained device: ``from pilotfish import Engine``."""

from pilotfish.bindings import PilotfishError
from pilotfish.runtime import Engine, Event, Result, Stats

__all__ = ["Engine", "Event", "PilotfishError", "Result", "Stats"]
