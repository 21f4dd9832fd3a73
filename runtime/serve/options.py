"""How to serve, and its defaults. Imports nothing of the extra, so that the command's help needs none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0: any that is free."""
    api_key: str | None = None
    num_sequences: int = 4
    """Generations of a bundle that run at once."""
    most_waiting: int = 64
    """Generations of a bundle that may wait for their turn."""
    most_body_bytes: int = 4 << 20
    most_seconds: float = 600
    """Of a request."""
    grace_seconds: int = 30
    """That what runs at the end has to finish."""


DEFAULTS = ServeOptions()
