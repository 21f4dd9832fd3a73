"""What is told of an exported model: its row of the summary table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .passes.check import nodes_per_layer

if TYPE_CHECKING:
    from .calibration import Calibration
    from .formats import FormatDecision
    from .losses import Loss
    from .manifest import ModelEntry
    from .model_export import ExportedModel
    from .parity import Parity


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """One row of the summary table."""

    name: str  # "target" or "draft"
    source: str
    architecture: str
    parameters: int
    bytes: int  # of the weights file
    bits_per_weight: float  # packed matrices only, scales included
    num_layers: int
    num_nodes: int
    nodes_per_layer: int
    formats: tuple[FormatDecision, ...]
    num_logits: int
    vocab_size: int
    logit_coverage: float | None  # share of the text's tokens that a draft's trimmed head scores
    parity: Parity | None
    losses: tuple[Loss, ...]
    calibration: Calibration | None = None  # None: each weight is rounded to the nearest value


def model_summary(name: str, exported: ExportedModel, entry: ModelEntry) -> ModelSummary:
    """The model's row of the summary table."""
    weights = exported.plan.weights
    matrix_bytes = sum(tensor.bytes for tensor in exported.tensors if tensor.name in weights)
    return ModelSummary(
        name=name,
        source=entry.source.id,
        architecture=entry.architecture,
        parameters=entry.parameters,
        bytes=entry.weights.bytes,
        bits_per_weight=8 * matrix_bytes / sum(weight.out_features * weight.in_features for weight in weights.values()),
        num_layers=entry.num_layers,
        num_nodes=len(exported.graph),
        nodes_per_layer=nodes_per_layer(exported.graph),
        formats=exported.formats,
        num_logits=entry.num_logits,
        vocab_size=entry.vocab_size,
        logit_coverage=exported.vocabulary.coverage if exported.vocabulary is not None else None,
        parity=exported.parity,
        losses=exported.losses,
        calibration=exported.calibration,
    )
