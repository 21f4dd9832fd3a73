"""Pass 2: the arithmetic of an RMSNorm becomes one RMSNorm node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxscript.rewriter import pattern

from pilotfish.exporter.contract import DOMAIN

from .match import constant

if TYPE_CHECKING:
    import onnx_ir as ir


def _arithmetic(op, x, weight, epsilon, axes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    variance = op.ReduceMean(op.Pow(x, 2.0), axes, keepdims=1)
    return op.Mul(weight, op.Mul(x, op.Reciprocal(op.Sqrt(op.Add(variance, epsilon)))))


def _node(op, x, weight, epsilon, axes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
    (value,) = constant(epsilon) or (0.0,)
    return op.RMSNorm(x, weight, epsilon=value, _domain=DOMAIN)


def _is_vector_norm(_context: object, weight: ir.Value, epsilon: ir.Value, axes: ir.Value, **_: object) -> bool:
    return (
        constant(axes) == [-1.0]
        and constant(epsilon) is not None
        and weight.shape is not None
        and weight.shape.rank() == 1
    )


def fuse_rms_norm(model: ir.Model) -> None:
    """Weight * x / sqrt(mean(x^2) + epsilon) over the last axis -> RMSNorm(x, weight)."""
    rule = pattern.RewriteRule(_arithmetic, _node, _is_vector_norm)
    pattern.RewriteRuleSet([rule], commute=True).apply_to_model(model)
