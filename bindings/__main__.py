"""``python -m pilotfish.bindings``: the flags a C program needs to compile against the installed package."""

import sys

from .paths import compiler_flags

if __name__ == "__main__":
    sys.stdout.write(compiler_flags() + "\n")
