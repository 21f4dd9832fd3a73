"""Whether a target's exported taps are the streams that torch has there, and a few of torch's values for the bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ParityError
from .manifest import TapReference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Array = np.ndarray[Any, np.dtype[Any]]
_MAX_ERROR = 0.3  # relative; 8-bit activations through all layers of a 4-bit model stay well below
_NUM_IDS = 16
_NUM_COLUMNS = 8


def check_taps(name: str, found: Mapping[int, Array], streams: Sequence[Array]) -> None:
    """Compares each tap with torch's stream there, which must also be the nearest of all streams.

    found: f32 [num_tokens, hidden] by tap. streams: torch's, into each layer and into the final norm.

    Raises:
        ParityError: a tap that is another stream, or far from it.
    """
    for tap, stream in found.items():
        errors = [float(np.linalg.norm(stream - other) / np.linalg.norm(other)) for other in streams]
        nearest = int(np.argmin(errors))
        if nearest != tap or not errors[tap] <= _MAX_ERROR:
            raise ParityError(
                f"{name}: aux_hidden.{tap} differs from torch's stream into layer {tap} by {errors[tap]:.2g} "
                f"(relative), and is nearest to the one into layer {nearest}, by {errors[nearest]:.2g}"
            )


def tap_reference(ids: Sequence[int], taps: Sequence[int], streams: Sequence[Array]) -> TapReference:
    """Torch's first columns at the last of some ids, for whoever runs the graph to compare with."""
    count = min(_NUM_IDS, len(ids))
    values = tuple(tuple(float(value) for value in streams[tap][count - 1, :_NUM_COLUMNS]) for tap in taps)
    return TapReference(tuple(ids[:count]), values)
