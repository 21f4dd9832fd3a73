"""One model: trace, fuse, quantise and pack, compare."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .calibration import CalibratedBlocks, calibrate_plan, choose_mixture, matrices_to_round
from .derived import with_derived
from .errors import OptionError
from .formats import choose_formats
from .graph_file import write_graph
from .options import DEFAULT_FORMATS
from .parity import NUM_STEPS, check_parity, parity_ids
from .passes import fuse
from .rotary_tables import rotary_limit, rotary_tables
from .row_check import check_rows
from .trace import build_on_meta, computed_buffers, trace
from .weights import count_tensors, write_weights

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    from transformers import PreTrainedModel

    from .calibration import Calibration, CalibrationText, Mixture
    from .draft_vocabulary import DraftVocabulary
    from .formats import FormatDecision
    from .load import Checkpoint
    from .losses import Loss
    from .manifest import TapReference
    from .options import ExportOptions
    from .parity import Parity
    from .passes import Plan
    from .progress import Progress
    from .sources import WeightSource
    from .tokenizer import TokenizerInfo
    from .weights_file import StoredTensor

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model whose graph and weights files have been written."""

    checkpoint: Checkpoint
    graph: ir.Graph
    plan: Plan
    formats: tuple[FormatDecision, ...]
    vocabulary: DraftVocabulary | None  # None: all ids
    tensors: tuple[StoredTensor, ...]
    graph_path: Path
    weights_path: Path
    max_positions: int
    source: WeightSource
    taps: tuple[int, ...]
    parity: Parity | None  # None: not compared
    losses: tuple[Loss, ...]  # of matrices that differ from the checkpoint's; empty: none, or not compared
    tap_reference: TapReference | None
    calibration: Calibration | None = None


def export_model(
    name: str,
    checkpoint: Checkpoint,
    tokenizer: TokenizerInfo,
    folder: Path,
    *,
    taps: tuple[int, ...] = (),
    vocabulary: DraftVocabulary | None = None,
    text: CalibrationText | None = None,
    traced: TracedModel | None = None,
    options: ExportOptions,
    progress: Progress,
) -> ExportedModel:
    """Writes `name`.onnx and `name`.bin into `folder`.

    taps: residual streams that the graph gives out for a head. vocabulary: the only ids that it scores. text: what
    its 4-bit matrices are rounded for, and what tells which of them get more `bits`. traced: what `trace_model` gave
    for this checkpoint; None: it is traced now.

    Raises:
        UnsupportedModelError, CheckpointError, OptionError, ParityError: see `errors`.
    """
    max_positions = _max_positions(checkpoint, options, progress)
    traced = traced or trace_model(name, checkpoint, progress)
    fused = _fuse(name, checkpoint, traced, taps=taps, vocabulary=vocabulary, options=options, progress=progress)
    if text is not None and options.bits is not None:
        mixture = choose_mixture(
            checkpoint.config, fused.plan, fused.source, text, bits=options.bits, progress=progress
        )
        fused = _fuse(
            name,
            checkpoint,
            traced,
            taps=taps,
            vocabulary=vocabulary,
            mixture=mixture,
            options=options,
            progress=progress,
        )
    plan = fused.plan
    tables = rotary_tables(plan, fused.source, max_positions)
    weights_path, graph_path = folder / f"{name}.bin", folder / f"{name}.onnx"
    tensors, calibration = _write_weights(
        fused, checkpoint, tables, weights_path, text=text, options=options, progress=progress
    )
    write_graph(fused.graph, plan, {weights_path.name: tensors}, graph_path)
    check_rows(
        fused.graph.graph,
        graph_path,
        options.cache_dtype,
        num_ids=plan.weights["embedding"].out_features,
        num_positions=max_positions,
    )

    exported = ExportedModel(
        checkpoint=checkpoint,
        graph=fused.graph.graph,
        plan=plan,
        formats=fused.formats,
        vocabulary=vocabulary,
        tensors=tensors,
        graph_path=graph_path,
        weights_path=weights_path,
        max_positions=max_positions,
        source=fused.source,
        taps=taps,
        parity=None,
        losses=(),
        tap_reference=None,
        calibration=calibration,
    )
    if not options.parity:
        return exported
    return compared(exported, tokenizer, options, progress)


@dataclass(frozen=True, slots=True)
class TracedModel:
    """A checkpoint's graph as torch gave it, which is the same whatever formats and vocabulary are chosen."""

    module: PreTrainedModel  # on the meta device
    source: WeightSource
    graph: ir.Model


def trace_model(name: str, checkpoint: Checkpoint, progress: Progress) -> TracedModel:
    """What takes seconds, and is done once for a model that is written several times.

    Raises:
        CheckpointError, UnsupportedModelError: see `errors`.
    """
    progress.stage(f"trace {name}", 1)
    module = build_on_meta(checkpoint.config)
    source = checkpoint.source(module)
    graph = trace(module, progress.note)
    progress.advance()
    return TracedModel(module, source, graph)


@dataclass(frozen=True, slots=True)
class _Fused:
    """A graph without weights, and where these come from."""

    source: WeightSource
    formats: tuple[FormatDecision, ...]
    graph: ir.Model
    plan: Plan


def _fuse(
    name: str,
    checkpoint: Checkpoint,
    traced: TracedModel,
    *,
    taps: tuple[int, ...],
    vocabulary: DraftVocabulary | None,
    mixture: Mixture | None = None,
    options: ExportOptions,
    progress: Progress,
) -> _Fused:
    progress.stage(f"fuse {name}", 1)
    formats = choose_formats(getattr(options, name), DEFAULT_FORMATS[name], traced.module, traced.source)
    if mixture is not None:
        formats = replace(formats, mixed=mixture.formats, mixed_reason=mixture.reason())
    graph = traced.graph.clone()
    plan = fuse(
        graph,
        formats,
        options.cache_dtype,
        int(checkpoint.config.num_hidden_layers),
        buffers=computed_buffers(checkpoint.config),
        logit_ids=None if vocabulary is None else vocabulary.ids,
        taps=taps,
    )
    progress.advance()
    return _Fused(traced.source, formats.decisions(plan), graph, plan)


def _write_weights(
    fused: _Fused,
    checkpoint: Checkpoint,
    tables: dict[str, Array],
    path: Path,
    *,
    text: CalibrationText | None,
    options: ExportOptions,
    progress: Progress,
) -> tuple[tuple[StoredTensor, ...], Calibration | None]:
    """Writes the weights file, with a text that rounds some of them, and tells what that has done."""
    plan, origin, calibration = fused.plan, checkpoint.origin(), None
    with ExitStack() as stack:
        blocks = None
        if text is not None and (options.bits is None or matrices_to_round(plan, fused.source)[0]):
            blocks = stack.enter_context(CalibratedBlocks(path.with_suffix(".calibrated")))
            calibration = calibrate_plan(checkpoint.config, plan, fused.source, text, blocks=blocks, progress=progress)
            origin += text.digest
        progress.stage(f"quantise and pack {path.stem}", count_tensors(plan))
        source = with_derived(fused.source, plan)
        return write_weights(plan, source, tables, path, progress, origin=origin, calibrated=blocks), calibration


def compared(
    exported: ExportedModel, tokenizer: TokenizerInfo, options: ExportOptions, progress: Progress
) -> ExportedModel:
    """With what a comparison with torch says.

    Raises:
        ParityError: the graph differs from torch.
    """
    progress.stage(f"compare {exported.graph_path.stem} with torch", NUM_STEPS)
    found = check_parity(
        exported.graph_path,
        exported.weights_path,
        exported.plan,
        exported.tensors,
        config=exported.checkpoint.config,
        source=exported.source,
        ids=parity_ids(tokenizer.json_text, min(options.parity_tokens, exported.max_positions)),
        cache_dtype=options.cache_dtype,
        taps=exported.taps,
        reread=exported.checkpoint.second_reading(),
        advance=progress.advance,
    )
    return replace(exported, parity=found.parity, losses=found.losses, tap_reference=found.tap_reference)


def _max_positions(checkpoint: Checkpoint, options: ExportOptions, progress: Progress) -> int:
    stated = int(checkpoint.config.max_position_embeddings)
    limit = min(stated, rotary_limit(checkpoint.config) or stated)
    if options.max_positions is not None and options.max_positions > limit:
        beyond = "" if limit == stated else "; beyond it, its rotary frequencies are others, which are not exported"
        raise OptionError(
            f"max_positions is {options.max_positions}; {checkpoint.id} was made for at most {limit}{beyond}"
        )
    if options.max_positions is None and limit < stated:
        progress.note(
            f"{checkpoint.id} has other rotary frequencies beyond {limit} positions, which are not exported: contexts "
            f"of up to {limit} tokens of its {stated} are supported"
        )
    return options.max_positions or limit
