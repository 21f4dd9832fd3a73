"""The ``pilotfish`` command: results on stdout, notes on stderr, exit codes 0 (done), 1 (a bug) and 2 (bad input)."""

from .app import main

__all__ = ["main"]
