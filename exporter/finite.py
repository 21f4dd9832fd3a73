"""Tensors of a checkpoint whose values are all numbers: one NaN makes a model answer nothing but NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import CheckpointError

if TYPE_CHECKING:
    from .quantise import Quantised
    from .sources import WeightSource

Array = np.ndarray[Any, np.dtype[Any]]


def read_finite(source: WeightSource, name: str) -> Array:
    """A tensor as f32.

    Raises:
        CheckpointError: the source has no such tensor, or a value of it is NaN or infinite.
    """
    values = source.read(name)
    if values.size and not np.isfinite([values.min(), values.max()]).all():  # both are NaN if one value is
        raise _not_finite(name, int(np.count_nonzero(~np.isfinite(values))))
    return values


def read_finite_blocks(source: WeightSource, name: str, format_name: str) -> Quantised | None:
    """The stored integers of a tensor where `format_name` holds them, see `WeightSource`.

    Raises:
        CheckpointError: the scale or offset of a block is NaN or infinite.
    """
    blocks = source.read_blocks(name, format_name)
    if blocks is not None:
        for values in (blocks.scale, blocks.offset):
            if values is not None and not np.isfinite(values).all():
                raise _not_finite(name, int(np.count_nonzero(~np.isfinite(values))))
    return blocks


def _not_finite(name: str, count: int) -> CheckpointError:
    return CheckpointError(f"tensor {name} has {count} values that are NaN or infinite; the checkpoint is damaged")
