"""The ``pilotfish`` command, and ``python -m pilotfish`` where its script is not on the path."""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130  # what shells report of a process that Ctrl-C ended


def main() -> None:
    """Import the command line, which takes a moment, and run it; Ctrl-C says nothing."""
    try:
        from pilotfish.runtime.cli import main as run  # noqa: PLC0415 - Ctrl-C may come in its midst

        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
