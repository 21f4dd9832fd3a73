"""Last pass: only nodes of the contract may remain; anything else is refused with its layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.exporter import contract

from .match import refuse

if TYPE_CHECKING:
    import onnx_ir as ir

NODES_PER_LAYER = 5
_ALLOWED = ("Embedding", "Linear", "PagedAttention", "Gather")


def check_fused(model: ir.Model, num_layers: int) -> None:
    """Every layer is Linear, PagedAttention, Linear, Linear, Linear.

    Raises:
        UnsupportedModelError: a node outside the contract, or a layer of another length.
    """
    for node in model.graph:
        if node.op_type not in _ALLOWED or node.domain != (contract.DOMAIN if node.op_type != "Gather" else ""):
            raise refuse(node, f"its {node.op_type} is not part of a layer this exporter can fuse")
    expected = ["Embedding"]
    expected += ["Linear", "PagedAttention", "Linear", "Linear", "Linear"] * num_layers
    expected += ["Gather", "Linear"]
    found = [node.op_type for node in model.graph]
    if found != expected:
        index = next(i for i, (a, b) in enumerate(zip([*found, ""], [*expected, ""], strict=False)) if a != b)
        layer = (index - 1) // NODES_PER_LAYER
        node = list(model.graph)[min(index, len(found) - 1)]
        raise refuse(node, f"layer {layer} does not consist of norm, attention, norm and gated MLP")
