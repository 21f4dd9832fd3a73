"""Compares an exported head with torch on the streams that its exported target has for the text of the parity check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .contract import aux_hidden
from .heads import KINDS
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
    run = _Run(folder, head.num_predictions, dict(zip(names, found, strict=True)), cache_dtype)
    exported = KINDS[head.kind].run(run, ids)
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


@dataclass(frozen=True, slots=True)
class _Run:
    """The graphs in a folder."""

    folder: Path
    num_predictions: int
    streams: Mapping[str, Array]
    cache_dtype: str

    def rows(self, role: str, inputs: Mapping[str, Array], outputs: list[str]) -> list[Array]:
        """Outputs of a graph whose rows do not know each other."""
        return run_rows(self._path(role), dict(inputs), outputs)

    def step(self, role: str, ids: list[int], inputs: Mapping[str, Array]) -> Array:
        """Logits of a graph with a cache, after each of the ids."""
        return graph_outputs(self._path(role), ids, self.cache_dtype, ["logits"], inputs)[0]

    def _path(self, role: str) -> Path:
        return self.folder / f"head.{role}.onnx"
