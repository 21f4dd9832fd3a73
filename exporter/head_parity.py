"""Compares an exported head with torch on the streams that its exported target has for the text of the parity check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .contract import aux_hidden
from .heads.torch_heads import TorchHead
from .logits import compare
from .parity import Parity, check_integers, graph_outputs, run_rows
from .reference_model import StoredWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from .heads import HeadCheckpoint, HeadModel, TargetParts
    from .model_export import ExportedModel
    from .weights_file import StoredTensor

Array = np.ndarray[Any, np.dtype[Any]]
NUM_STEPS = 4  # target graph, head's graphs, torch with the stored integers, torch with the original weights


def check_head_parity(
    head: HeadModel,
    checkpoint: HeadCheckpoint,
    parts: TargetParts,
    target: ExportedModel,
    tensors: Mapping[Path, Iterable[StoredTensor]],
    *,
    folder: Path,
    ids: list[int],
    cache_dtype: str,
    advance: Callable[[], None],
) -> Parity:
    """Runs the head's graphs in `folder` and torch on the same streams, and compares the logits of all outputs.

    tensors: the head's stored ones, by the file that they are in.

    What quantisation costs is reported and no error: a head cannot change the text, acceptance says what it is worth.

    Raises:
        ParityError: KL against torch on the same integers over the tolerance of the head's format or cache.
    """
    names = [aux_hidden(tap) for tap in head.taps]
    _, *found = graph_outputs(target.graph_path, ids, cache_dtype, ["logits", *names])
    streams = dict(zip(head.taps, found, strict=True))
    advance()
    exported = _graph_logits(head, folder, streams, ids, cache_dtype)
    advance()
    stored = StoredWeights(head.plan, tensors)
    inputs = {tap: torch.from_numpy(stream) for tap, stream in streams.items()}
    readers = ((stored.read, stored.read_head), (head.source.read, head.source.read))
    logits = []
    for read, read_output in readers:
        expected = TorchHead(checkpoint, parts, read, read_output).logits(inputs, torch.tensor(ids)).numpy()
        kept = head.plan.logit_ids
        if kept is not None and expected.shape[1] > len(kept):  # the original weights score all ids
            expected = expected[:, list(kept)]
        logits.append(expected)
        advance()
    same, original = logits
    parity = Parity(
        *compare(same, exported), *compare(original, exported), *compare(original, same)[2:], float(len(ids))
    )
    check_integers("head", parity, {weight.format for weight in head.plan.weights.values()}, cache_dtype)
    return parity


def _graph_logits(head: HeadModel, folder: Path, streams: dict[int, Array], ids: list[int], cache_dtype: str) -> Array:
    """Logits of every output one after the other, in the order of TorchHead.logits."""
    rows: dict[str, Array] = {aux_hidden(tap): stream for tap, stream in streams.items()}
    paths = {role: folder / f"head.{role}.onnx" for role in head.graphs}
    if "heads" in paths:
        names = [f"logits.{index}" for index in range(head.num_predictions)]
        return np.concatenate(run_rows(paths["heads"], rows, names))
    if "features" in paths:
        features = run_rows(paths["features"], rows, ["features"])[0]
        return graph_outputs(paths["step"], ids[1:], cache_dtype, ["logits"], {"features": features[:-1]})[0]
    num_rows = len(ids) - head.num_predictions
    state = {name: stream[:num_rows] for name, stream in rows.items()}
    results = []
    for stage, path in enumerate(paths.values()):
        tokens = np.array(ids[1 + stage : 1 + stage + num_rows], dtype=np.int32)
        logits, next_state = run_rows(path, {**state, "input_ids": tokens}, ["logits", "next_state"])
        results.append(logits)
        state = {"state": next_state}
    return np.concatenate(results)
