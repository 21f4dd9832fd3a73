"""Pass 3: the arithmetic of a rotary embedding becomes one Rotary node; finds the module that makes the angles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxscript.rewriter import pattern

from pilotfish.exporter.contract import DOMAIN

from .match import constant, input_of, producer, refuse

if TYPE_CHECKING:
    import onnx_ir as ir

    from .plan import Plan


def _arithmetic(op, x, cos, sin, half, end, axis, step, start, middle, axis_low, step_low):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
    upper = op.Slice(x, half, end, axis, step)
    lower = op.Slice(x, start, middle, axis_low, step_low)
    return op.Add(op.Mul(x, cos), op.Mul(op.Concat(op.Neg(upper), lower, axis=-1), sin))


def _node(op, x, cos, sin, **_):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN202
    return op.Rotary(x, cos, sin, _domain=DOMAIN)


def _rotates_halves(_context: object, x: ir.Value, **bounds: ir.Value) -> bool:
    """Whether the two slices are the upper and the lower half of the last axis."""
    width = None if x.shape is None else x.shape[-1]
    if not isinstance(width, int):
        return False
    found = {name: constant(value) for name, value in bounds.items() if name not in ("cos", "sin")}
    last = ([-1.0], [float(len(x.shape or ()) - 1)])
    return (
        found["half"] == found["middle"] == [width / 2]
        and found["start"] == [0.0]
        and (found["end"] or [0.0])[0] >= width
        and found["step"] == found["step_low"] == [1.0]
        and found["axis"] in last
        and found["axis_low"] in last
    )


def fuse_rotary(model: ir.Model, plan: Plan) -> None:
    """X * cos + (-x[half:], x[:half]) * sin -> Rotary(x, cos, sin), with angles = position_ids * frequencies."""
    rule = pattern.RewriteRule(_arithmetic, _node, _rotates_halves)
    pattern.RewriteRuleSet([rule], commute=True).apply_to_model(model)
    modules = set()
    for node in model.graph:
        if node.op_type == "Rotary":
            modules.add(_angle_module(node, input_of(node, 1), "Cos"))
            modules.add(_angle_module(node, input_of(node, 2), "Sin"))
    if len(modules) > 1:
        raise refuse(next(iter(model.graph)), f"layers rotate by different angle tables ({', '.join(sorted(modules))})")
    plan.rotary_module = modules.pop() if modules else ""


def _angle_module(rotary: ir.Node, value: ir.Value, function: str) -> str:
    """Name of the torch module whose frequencies `value` = function(position_ids * frequencies) uses."""
    node = value.producer()
    while node is not None and node.op_type in ("Unsqueeze", "Mul"):  # broadcasting and a constant attention factor
        value = input_of(node, 1 if constant(node.inputs[0]) is not None else 0)
        node = value.producer()
    angles = producer(input_of(node, 0), "Concat") if node is not None and node.op_type == function else None
    product = producer(angles.inputs[0], "Mul") if angles is not None and angles.inputs[0] is angles.inputs[1] else None
    roots = set() if product is None else _roots(product)
    frequencies = [name for name in roots if name.endswith("inv_freq")]
    if len(frequencies) != 1 or roots != {"position_ids", frequencies[0]}:
        raise refuse(rotary, "its rotary angles are not position times a fixed frequency")
    return frequencies[0].rpartition(".")[0]


def _roots(node: ir.Node) -> set[str]:
    """Graph inputs that a node depends on."""
    found: set[str] = set()
    pending = [node]
    while pending:
        for value in pending.pop().inputs:
            above = None if value is None else value.producer()
            if above is not None:
                pending.append(above)
            elif value is not None and constant(value) is None:
                found.add(str(value.name))
    return found
