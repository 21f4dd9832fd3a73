"""Pass 6: rows that are looked up by token become Embedding nodes, with the number that they are multiplied with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter import contract

from .match import constant, input_of, replace

if TYPE_CHECKING:
    from .plan import Plan


def pack_embeddings(model: ir.Model, plan: Plan, shared: dict[str, ir.Value]) -> None:
    """Lookup(weight), perhaps times a number -> Embedding(input_ids, packed weight)."""
    first = True
    for node in list(model.graph):
        if node.op_type != "Lookup":
            continue
        parameter = input_of(node, 0)
        name = "embedding" if first else "embedding." + str(parameter.name).removesuffix(".weight")
        first = False
        rows = node.attributes.get("rows")
        weight = plan.weight(name, [parameter], "embedding", rows=None if rows is None else tuple(rows.as_ints()))
        attributes: dict[str, str | int | float] = {
            "format": weight.format,
            "num_rows": weight.out_features,
            "num_columns": weight.in_features,
            "scale": 1.0,
        }
        place, scale = _scaled(node)
        attributes["scale"] = scale
        new = ir.node("Embedding", [shared["input_ids"], plan.value(weight.name)], attributes, domain=contract.DOMAIN)
        replace(place, new)


def _scaled(node: ir.Node) -> tuple[ir.Node, float]:
    """The node that multiplies all that is looked up with a number, and the number."""
    uses = list(node.outputs[0].uses())
    if len(uses) == 1 and uses[0].node.op_type == "Mul":
        product = uses[0].node
        factor = constant(product.inputs[1 - uses[0].idx])
        if factor is not None and len(factor) == 1:
            return product, factor[0]
    return node, 1.0
