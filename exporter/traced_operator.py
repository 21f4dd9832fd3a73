"""Operators that a traced graph has until the passes put nodes of the contract, or copies of nodes, in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnxscript import values

from .contract import DOMAIN, DOMAIN_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence


def traced_operator(
    name: str, types: list[str], required: Sequence[str], optional: Sequence[str] = (), **attributes: str
) -> values.Op:
    """Each input has one of the types by itself, and the output that of the first; attributes are kinds by name."""
    define = onnx.defs.OpSchema
    inputs = [define.FormalParameter(item, f"T_{item}") for item in required]
    inputs += [
        define.FormalParameter(item, f"T_{item}", param_option=define.FormalParameterOption.Optional)
        for item in optional
    ]
    schema = define(
        name,
        DOMAIN,
        DOMAIN_VERSION,
        inputs=inputs,
        outputs=[define.FormalParameter("y", inputs[0].type_str)],
        type_constraints=[(f"T_{item}", types, "") for item in (*required, *optional)],
        attributes=[define.Attribute(key, getattr(define.AttrType, kind)) for key, kind in attributes.items()],
    )
    return values.Op(values.Opset(DOMAIN, DOMAIN_VERSION), name, schema)
