"""What can be trained: the draft model of ..draft and the heads, one file a kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from pilotfish.exporter.errors import ExportError, UnsupportedModelError
from pilotfish.exporter.heads import HeadCheckpoint, open_head
from pilotfish.exporter.heads.speculators import NORMED_RESIDUAL
from pilotfish.exporter.training.draft import DraftStudent, new_draft, read_draft
from pilotfish.exporter.training.errors import DataError, TrainingOptionError
from pilotfish.exporter.training.shapes import DraftShape, EagleShape, MedusaShape, SpeculatorShape

from . import eagle, medusa, mlp_speculator
from .head_files import load_head

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from pilotfish.exporter.training.options import TrainOptions
    from pilotfish.exporter.training.passes import StageData
    from pilotfish.exporter.training.shapes import HeadShape
    from pilotfish.exporter.training.student import Student
    from pilotfish.exporter.training.target import Target

__all__ = ["load_student", "new_student"]


class _Head(NamedTuple):
    """A kind of head that can be trained."""

    kinds: tuple[str, ...]  # of its checkpoints, keys of `heads.KINDS`
    shape: type[HeadShape]
    new: Callable[[Any, Target, str, Tensor | None], Student]  # of a shape, a target, a loss and the ids it scores
    shape_of: Callable[[HeadCheckpoint], HeadShape]


_HEADS = (
    _Head(("medusa",), MedusaShape, medusa.MedusaStudent, medusa.shape_of),
    _Head(("mlp_speculator",), SpeculatorShape, mlp_speculator.SpeculatorStudent, mlp_speculator.shape_of),
    _Head(("eagle", "eagle3"), EagleShape, eagle.EagleStudent, eagle.shape_of),
)
_COUNTED_ROWS = 20_000
_ROWS_TOGETHER = 256
_MEASURED_ROWS = 16
_SMALLEST_SIZE = 0.05  # of the median: columns that are almost always 0 are not blown up


def new_student(options: TrainOptions, target: Target, stages: tuple[StageData, ...]) -> Student:
    """What `options.shape` names, with random weights by the seed or with those of `options.initial`.

    Raises:
        TrainingOptionError: an initial draft or head of another shape.
    """
    shape, loss = options.shape, options.loss
    if isinstance(shape, DraftShape):
        return DraftStudent(new_draft(shape, target, options.seed, options.initial), loss)
    torch.manual_seed(options.seed)
    if options.initial is None:
        ids = None
        if isinstance(shape, EagleShape) and shape.draft_vocab is not None:
            ids = _most_frequent(stages[-1], target, shape.draft_vocab)
        student = _new_head(shape, target, loss, ids)
        _scale_taps(student, stages[-1], target, fresh=True)
        return student
    try:
        checkpoint = open_head(str(options.initial))
    except ExportError as error:
        raise TrainingOptionError(f"initial is {options.initial}: {error}") from error
    if checkpoint.config.get(NORMED_RESIDUAL):
        raise TrainingOptionError(f"initial is {options.initial}, which has {NORMED_RESIDUAL}; train another head")
    ids = _scored_ids(checkpoint)
    if isinstance(shape, EagleShape) and shape.draft_vocab is not None:
        chosen = _most_frequent(stages[-1], target, shape.draft_vocab)
        checkpoint, ids = _scoring(checkpoint, ids, chosen, target), chosen
    student = _new_head(shape, target, loss, ids)
    load_head(student, checkpoint)
    _scale_taps(student, stages[-1], target, fresh=False)
    return student


def load_student(folder: Path, target: Target) -> Student:
    """A finished draft or head for `target`.

    Raises:
        DataError: it cannot be read, or is for another vocabulary or hidden size.
    """
    try:
        checkpoint = open_head(str(folder))
    except UnsupportedModelError:  # tensors of no head
        checkpoint = None
    except ExportError as error:
        raise DataError(f"{folder} cannot be read: {error}") from error
    if checkpoint is None or (checkpoint.kind == "eagle" and "fc.weight" not in checkpoint.tensors):  # a whole Llama
        return DraftStudent(read_draft(folder, target), "forward-kl")
    try:
        student = _new_head(_shape_of(checkpoint), target, "forward-kl", _scored_ids(checkpoint))
        load_head(student, checkpoint)
    except TrainingOptionError as error:
        raise DataError(f"the head {folder} does not fit {target.checkpoint.id}: {error}") from error
    return student


def _new_head(shape: HeadShape, target: Target, loss: str, ids: Tensor | None) -> Student:
    head = next(head for head in _HEADS if type(shape) is head.shape)
    return head.new(shape, target, loss, ids)


def _scale_taps(student: Student, data: StageData, target: Target, *, fresh: bool) -> None:
    """Gives a head the sizes of its taps' columns on some training rows.

    Medians: the first position of a text has states a hundred times larger than all others.
    """
    if not student.taps:
        return
    batch = data.rows.batch(data.split.train[:_MEASURED_ROWS], target.model.device)
    streams = target.look(batch.token_ids, batch.position_ids, student.taps).streams
    sizes = torch.cat(streams, dim=-1).flatten(0, 1).abs().float().median(dim=0).values.cpu()
    student.scale_taps(sizes.clamp(min=_SMALLEST_SIZE * float(sizes.median())), fresh=fresh)


def _shape_of(checkpoint: HeadCheckpoint) -> HeadShape:
    for head in _HEADS:
        if checkpoint.kind in head.kinds:
            return head.shape_of(checkpoint)
    raise TrainingOptionError(f"heads of kind {checkpoint.kind} cannot be trained or evaluated here")


def _scored_ids(checkpoint: HeadCheckpoint) -> Tensor | None:
    offsets = checkpoint.tensors.get("d2t")
    return None if offsets is None else offsets + torch.arange(len(offsets))


def _scoring(checkpoint: HeadCheckpoint, known: Tensor | None, ids: Tensor, target: Target) -> HeadCheckpoint:
    """An EAGLE-3 head that scores `ids`: rows of the output layer that it has stay, others begin as their mean.

    The target's rows would not do: training has moved the head's together, and a few among them outweigh them all.
    """
    own = checkpoint.tensors["lm_head.weight"].float()
    rows = own.mean(dim=0).repeat(target.vocab_size, 1)
    rows[torch.arange(len(own)) if known is None else known] = own
    return replace(checkpoint, tensors={**checkpoint.tensors, "lm_head.weight": rows[ids]})


def _most_frequent(data: StageData, target: Target, count: int) -> Tensor:
    """The stop ids, then the most frequent tokens at scored positions of the training rows; ascending."""
    if count > target.vocab_size:
        raise TrainingOptionError(f"draft_vocab is {count}; the target has {target.vocab_size} tokens")
    counts = np.zeros(target.vocab_size, dtype=np.int64)
    rows = data.split.train[:_COUNTED_ROWS]
    for start in range(0, len(rows), _ROWS_TOGETHER):
        batch = data.rows.batch(rows[start : start + _ROWS_TOGETHER], torch.device("cpu"))
        predicted = batch.token_ids[:, 1:][batch.scored[:, :-1]].numpy()
        counts += np.bincount(predicted, minlength=target.vocab_size)[: target.vocab_size]
    by_frequency = np.argsort(-counts, kind="stable").tolist()
    chosen = list(dict.fromkeys([*target.eos_ids, *by_frequency]))[:count]
    return torch.tensor(sorted(chosen))
