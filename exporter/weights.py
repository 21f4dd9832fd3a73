"""The stored tensors of a plan: read, quantise, pack and write one at a time, so memory holds one matrix."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .contract import BLOCK_COLUMNS
from .errors import UnsupportedModelError
from .finite import read_finite, read_finite_blocks
from .packing import interleave, pack, pack_float
from .quantise import Quantised, quantise, quantise_strip
from .strips import in_strips
from .weights_file import StoredTensor, WeightsFile

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from .calibration.blocks import CalibratedBlocks
    from .passes import PackedWeight, Plan, Vector
    from .progress import Progress
    from .sources import WeightSource

Array = np.ndarray[Any, np.dtype[Any]]


def write_weights(
    plan: Plan,
    source: WeightSource,
    tables: dict[str, Array],
    path: Path,
    progress: Progress,
    *,
    origin: str | None = None,
    elsewhere: Container[str] = (),
    calibrated: CalibratedBlocks | None = None,
) -> tuple[StoredTensor, ...]:
    """Writes the weights file, without the tensors that are `elsewhere`; `progress` advances after each of all.

    origin: what tells this checkpoint and these packages from others; what a killed export has packed of the same is
        kept, and `progress` is told. None: all is packed.
    calibrated: integers of matrices that were rounded already.

    Raises:
        CheckpointError: the source lacks a tensor, or has one with a value that is no number.
        UnsupportedModelError: a matrix that low-bit blocks cannot hold.
    """
    stored: list[StoredTensor] = []
    with WeightsFile(path, None if origin is None else _content(plan, tables, origin)) as file:
        if file.num_kept:
            progress.note(f"{path.name}: {file.num_kept} tensors are kept, which an export that was killed had packed")
        for name, parts in _tensors(plan, source, tables, calibrated):
            if name not in elsewhere:
                stored.append(file.add(name, parts))
            progress.advance()
    return tuple(stored)


def _content(plan: Plan, tables: dict[str, Array], origin: str) -> str:
    """All that decides about the bytes of a weights file."""
    hashes = {name: hashlib.sha256(table.tobytes()).hexdigest() for name, table in tables.items()}
    return repr((origin, plan.weights, plan.vectors, hashes))


def count_tensors(plan: Plan) -> int:
    """How often `write_weights` advances."""
    return len(plan.weights) + len(plan.vectors) + len(plan.tables)


def _tensors(
    plan: Plan, source: WeightSource, tables: dict[str, Array], calibrated: CalibratedBlocks | None
) -> Iterator[tuple[str, Iterator[Array]]]:
    for weight in plan.weights.values():
        yield weight.name, packed_chunks(weight, source, calibrated)
    for vector in plan.vectors.values():
        yield vector.name, iter([read_vector(vector, source)])
    for name, table in tables.items():
        yield name, iter([table])


def read_vector(vector: Vector, source: WeightSource) -> Array:
    """A stored vector, f32, in the row order of its matrix."""
    parts = [read_finite(source, name).astype(np.float32, copy=False) for name in vector.sources]
    if vector.is_plain:
        return interleave(*parts) if vector.interleaved else np.concatenate(parts)
    elements = _selected(np.concatenate(parts), vector.rows)
    elements = elements * np.float32(vector.scale)
    return interleave(*np.split(elements, 2)) if vector.interleaved else elements


def packed_chunks(
    weight: PackedWeight, source: WeightSource, calibrated: CalibratedBlocks | None = None
) -> Iterator[Array]:
    """The packed bytes of a matrix, some rows at a time."""
    kind = weight.format
    if kind in ("f16", "f32"):
        rows = _read_rows(weight, source)
        yield from in_strips(lambda start, end: pack_float(rows[start:end], kind), *rows.shape)
        return
    if weight.in_features % BLOCK_COLUMNS:
        columns = f"{weight.sources[0]} has {weight.in_features} columns"
        raise UnsupportedModelError(f"{columns}; {weight.format} needs a multiple of {BLOCK_COLUMNS}, use f16")
    blocks = _stored_blocks(weight, source, calibrated)
    if blocks is not None:
        shape = blocks.codes.shape
        yield from in_strips(lambda start, end: pack(blocks.rows(start, end), kind), *shape)
        return
    rows = _read_rows(weight, source)
    yield from in_strips(lambda start, end: pack(quantise_strip(rows[start:end], kind), kind), *rows.shape)


def _stored_blocks(weight: PackedWeight, source: WeightSource, calibrated: CalibratedBlocks | None) -> Quantised | None:
    """The integers of a low-bit matrix in stored row order: calibrated ones, or the checkpoint's where it has some."""

    def find(name: str) -> Quantised | None:
        rounded = None if calibrated is None else calibrated.get(name, weight.format)
        if rounded is None and not weight.transposed:  # whose blocks lie along the other axis
            return read_finite_blocks(source, name, weight.format)
        return rounded

    blocks = [find(name) for name in weight.sources]
    if all(found is None for found in blocks):
        return None
    pairs = zip(weight.sources, blocks, strict=True)
    parts = [found or quantise(_read_part(weight, source, name), weight.format) for name, found in pairs]
    offsets = [part.offset for part in parts if part.offset is not None]
    return Quantised(
        _arranged(weight, [part.codes for part in parts]),
        _scaled(weight, _arranged(weight, [part.scale for part in parts])),
        _scaled(weight, _arranged(weight, offsets)) if offsets else None,
    )


def _read_rows(weight: PackedWeight, source: WeightSource) -> Array:
    """A matrix as f32 in stored row order."""
    rows = _arranged(weight, [_read_part(weight, source, name) for name in weight.sources])
    return rows if weight.scale == 1 else rows * np.float32(weight.scale)


def _read_part(weight: PackedWeight, source: WeightSource, name: str) -> Array:
    """A parameter as [out_features, in_features]."""
    found = read_finite(source, name)
    return found.T if weight.transposed else found


def _scaled(weight: PackedWeight, values: Array) -> Array:
    """Scales or offsets of blocks."""
    if weight.scale == 1:
        return values
    return np.asarray((values.astype(np.float32) * np.float32(weight.scale)).astype(values.dtype))


def _arranged(weight: PackedWeight, parts: list[Array]) -> Array:
    if weight.interleaved and len(parts) == 2 and weight.rows is None:  # noqa: PLR2004 - gate and up
        return interleave(*parts)
    rows = _selected(parts[0] if len(parts) == 1 else np.concatenate(parts), weight.rows)
    return interleave(*np.split(rows, 2)) if weight.interleaved else rows


def _selected(rows: Array, numbers: tuple[int, ...] | None) -> Array:
    return rows if numbers is None else rows[list(numbers)]
