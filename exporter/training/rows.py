"""Rows of tokens on disk, memory-mapped, and the order in which training reads them. Knows nothing about text."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .errors import DataError
from .storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]

_HEADER = "rows.json"
_HELD_OUT_SHARE = 100  # one row in this many is held out
_MAX_HELD_OUT_ROWS = 64  # bounds the time of an evaluation


class Batch(NamedTuple):
    """Rows of one pass. `position_ids` is None where a row is one piece of text from position 0 on."""

    token_ids: Tensor  # int64 [rows, length]
    position_ids: Tensor | None  # int64 [rows, length]; falls back to 0 where a new conversation begins
    scored: Tensor  # bool [rows, length]: positions whose next-token distribution is trained
    row_ids: Array | None = None  # where the rows come from


class Row(NamedTuple):
    """One row to write; positions and scored are None where the whole row is one text."""

    tokens: Array
    positions: Array | None = None
    scored: Array | None = None


@dataclass(frozen=True, slots=True)
class RowsHeader:
    """What rows.json says."""

    length: int
    num_rows: int
    token_dtype: str
    segmented: bool  # positions and scored are stored
    fingerprint: str  # of everything that the rows were made from


class TokenRows:
    """A finished folder of rows.

    Raises:
        DataError: the folder is incomplete.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self.header = RowsHeader(**json.loads((folder / _HEADER).read_text()))
            shape = (self.header.num_rows, self.header.length)
            self.tokens = _mapped(folder / "tokens.bin", self.header.token_dtype, shape)
            self._positions = _mapped(folder / "positions.bin", "uint16", shape) if self.header.segmented else None
            self._scored = _mapped(folder / "scored.bin", "bool", shape) if self.header.segmented else None
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"{folder} holds no complete rows ({error}); delete it to make them again") from error

    def __len__(self) -> int:
        return self.header.num_rows

    def batch(self, row_ids: Array, device: torch.device) -> Batch:
        """Reads rows."""
        tokens = _tensor(self.tokens[row_ids], np.int64, device)
        if self._positions is None or self._scored is None:
            return Batch(tokens, None, torch.ones_like(tokens, dtype=torch.bool), row_ids)
        positions = _tensor(self._positions[row_ids], np.int64, device)
        return Batch(tokens, positions, _tensor(self._scored[row_ids], np.bool_, device), row_ids)


def _mapped(path: Path, dtype: str, shape: tuple[int, int]) -> Array:
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)


def _tensor(values: Array, dtype: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(values.astype(dtype)).to(device, non_blocking=True)


def existing_rows(folder: Path, fingerprint: str) -> TokenRows | None:
    """The rows of an earlier call, if they were made from the same things."""
    if not (folder / _HEADER).is_file():
        return None
    rows = TokenRows(folder)
    return rows if rows.header.fingerprint == fingerprint else None


def write_rows(folder: Path, rows: Iterable[Row], length: int, vocab_size: int, fingerprint: str) -> TokenRows:
    """Writes all rows; `folder` appears only when it is complete.

    Raises:
        StorageError: the disk is full or not writable.
        DataError: there is no row.
    """
    token_dtype = "uint16" if vocab_size <= 1 << 16 else "uint32"
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    num_rows, segmented = 0, False
    with storage_errors(folder):
        partial.mkdir(parents=True)
        with ExitStack() as stack:
            names = ("tokens", "positions", "scored")
            tokens, positions, scored = (stack.enter_context((partial / f"{name}.bin").open("wb")) for name in names)
            for row in rows:
                tokens.write(row.tokens.astype(token_dtype).tobytes())
                if row.positions is not None and row.scored is not None:
                    segmented = True
                    positions.write(row.positions.astype(np.uint16).tobytes())
                    scored.write(row.scored.astype(np.bool_).tobytes())
                num_rows += 1
        if num_rows == 0:
            raise DataError(f"the text does not fill one row of {length} tokens; give more text or a shorter length")
        header = RowsHeader(length, num_rows, token_dtype, segmented, fingerprint)
        (partial / _HEADER).write_text(json.dumps(asdict(header)))
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    return TokenRows(folder)


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of a training and a held-out part that share no row."""

    train: Array
    held_out: Array


def split_rows(num_rows: int, seed: int) -> Split:
    """One row in a hundred is held out, at least one and at most 64, chosen by the seed.

    Raises:
        DataError: fewer than two rows.
    """
    if num_rows < 2:  # noqa: PLR2004
        raise DataError(f"there is {num_rows} row of text; training and its held-out part need 2, give more text")
    count = min(max(1, num_rows // _HELD_OUT_SHARE), _MAX_HELD_OUT_ROWS)
    order = np.random.default_rng([seed, num_rows]).permutation(num_rows)
    return Split(np.sort(order[count:]), np.sort(order[:count]))


class StepOrder:
    """Which rows each optimizer step reads: epoch after epoch, each in its own order by the seed. Holds no position.

    Raises:
        DataError: fewer rows than one step reads.
    """

    def __init__(self, row_ids: Array, rows_per_step: int, seed: int, what: str) -> None:
        if len(row_ids) < rows_per_step:
            raise DataError(
                f"{what} has {len(row_ids)} rows for training; one step reads {rows_per_step}, "
                "give more text or a smaller batch_tokens"
            )
        self._row_ids, self._rows_per_step, self._seed = row_ids, rows_per_step, seed
        self._epoch, self._order = -1, row_ids

    def rows_of(self, step: int) -> Array:
        """Row numbers of a step, from 0; an epoch's incomplete last step is left out."""
        epoch, at = divmod(step, len(self._row_ids) // self._rows_per_step)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self._seed, epoch]).permutation(self._row_ids)
        return self._order[at * self._rows_per_step : (at + 1) * self._rows_per_step]
