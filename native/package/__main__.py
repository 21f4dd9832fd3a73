"""``python -m pilotfish``: the command, where its script is not on the path."""

from pilotfish.runtime.cli import main

main()
