"""What the options of a generation make of a row of logits: a second implementation, in NumPy, to verify the first by.

Slow and plain, in double precision: processors in transformers' order, then the warpers temperature, top-k, top-p and
min-p, each on what the one before left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .options import GenerateOptions

# Summing in single precision may put a token just inside top-p that double precision puts just outside.
TOP_P_SLACK = 1e-4
MIN_P_SLACK = 1e-5


def distribution(logits: NDArray[np.float32], options: GenerateOptions) -> NDArray[np.float64]:
    """Probabilities of all ids, [num_ids]; 0 for those that the options rule out."""
    scaled = logits.astype(np.float64) / options.temperature
    shares = np.exp(scaled - scaled.max())
    kept = np.arange(len(shares))
    if options.top_k or options.top_p < 1:
        kept = np.argsort(-shares, kind="stable")[: options.top_k or None]
    if options.top_p < 1:
        mass = np.cumsum(shares[kept]) / shares[kept].sum()
        kept = kept[: int(np.searchsorted(mass, options.top_p + TOP_P_SLACK)) + 1]
    kept = kept[shares[kept] >= options.min_p * (1 - MIN_P_SLACK) * shares.max()]
    result = np.zeros(len(shares))
    result[kept] = shares[kept] / shares[kept].sum()
    return result
