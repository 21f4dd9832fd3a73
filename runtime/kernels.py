"""Whether the CPU kernels that run are the fastest for the processor: slow ones are never a surprise."""

from __future__ import annotations

import warnings

from pilotfish.bindings import calls


def slow_kernels() -> str | None:
    """Why the CPU kernels are slower than the processor could run them, or than on others; None if they are not."""
    running, best = calls.cpu_kernels(), calls.best_cpu_kernels()
    if running != best:
        return f"the CPU kernels are {running}, as PILOTFISH_CPU says; this processor runs {best}, which is faster"
    if best == "portable":
        return (
            "the CPU kernels are portable, which are many times slower than those for AVX2 with FMA and F16C, or for "
            f"AVX-512 VNNI: {calls.cpu_name()} has none of these"
        )
    return None


def warn_of_slow_kernels() -> None:
    """A RuntimeWarning where slow_kernels() has something to say; Python shows it once."""
    if slow := slow_kernels():
        warnings.warn(slow, RuntimeWarning, stacklevel=3)
