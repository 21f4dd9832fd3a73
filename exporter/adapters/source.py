"""The tensors of a checkpoint with an adapter merged into them, in f32, before anything is quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.errors import UnsupportedModelError
from pilotfish.exporter.trace import first_names

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pilotfish.exporter.quantise import Quantised
    from pilotfish.exporter.sources import CheckpointSource

    from .adapter import Adapter, Change

Array = np.ndarray[Any, np.dtype[Any]]


class AdaptedSource:
    """Reads what the adapter changes anew, and leaves all else to the source of the checkpoint."""

    def __init__(
        self, base: CheckpointSource, adapter: Adapter, model: PreTrainedModel, name: str, *, is_text_part: bool
    ) -> None:
        """Raises CheckpointError or UnsupportedModelError where the adapter does not fit `model`, called `name`."""
        self._base, self._adapter = base, adapter
        self._changes = adapter.changes(model, name, is_text_part=is_text_part)
        self._drop_tied(model, name)

    def _drop_tied(self, model: PreTrainedModel, name: str) -> None:
        """A tensor that two modules share cannot be changed in one of them, but may be there as it was."""
        first = first_names(model)
        shared = [of for of in first if list(first.values()).count(first[of]) > 1]
        for changed in [of for of in shared if of in self._changes]:
            if not self._is_unchanged(self._changes[changed], first[changed]):
                twins = ", ".join(of for of in shared if first[of] == first[changed] and of != changed)
                raise UnsupportedModelError(
                    f"{self._adapter.path} changes {changed}, which {name} shares with {twins}; save the base with "
                    "tie_word_embeddings = false and both tensors, and export that with the adapter"
                )
            del self._changes[changed]

    def _is_unchanged(self, change: Change, name: str) -> bool:
        if change.whole is None or change.down is not None:
            return False
        return np.array_equal(self._adapter.read_finite(change.whole), self._base.read(name))

    def read(self, name: str) -> Array:
        """A tensor as f32, merged."""
        change = self._changes.get(name)
        if change is None:
            return self._base.read(name)
        weight = self._base.read(name) if change.whole is None else self._adapter.read_finite(change.whole)
        return weight if change.down is None else _merged(weight, change, self._adapter)

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """The base's blocks of what is not changed."""
        return None if name in self._changes else self._base.read_blocks(name, format_name)

    def stored_type(self, name: str) -> str | None:
        """The base's type; of what is changed that of its arithmetic."""
        return "F32" if name in self._changes else self._base.stored_type(name)

    def names(self) -> list[str]:
        """Of the base."""
        return self._base.names()

    def stored_name(self, name: str) -> str | None:
        """In the base."""
        return self._base.stored_name(name)

    def shape(self, stored: str) -> tuple[int, ...]:
        """In the base, which the adapter does not change."""
        return self._base.shape(stored)

    def equal(self, stored: str, other: str) -> bool:
        """In the base: tied tensors are not changed."""
        return self._base.equal(stored, other)

    def packed_type(self, stored: str) -> str | None:
        """Of the base."""
        return self._base.packed_type(stored)


def _merged(weight: Array, change: Change, adapter: Adapter) -> Array:
    """W + scaling B A (Hu et al., 2021); with a magnitude m its rows as long as m says (DoRA, Liu et al., 2024)."""
    down, up = (adapter.read_finite(str(name)) for name in (change.down, change.up))
    delta = (up @ down) * np.float32(change.scaling)
    weight = weight + (delta.T if change.is_transposed else delta)
    if change.magnitude is None:
        return weight
    rows = weight.T if change.is_transposed else weight
    rows = rows * (adapter.read_finite(change.magnitude) / np.linalg.norm(rows, axis=1))[:, None]
    return np.asarray(rows.T if change.is_transposed else rows)
