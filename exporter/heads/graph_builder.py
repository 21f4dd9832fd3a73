"""Writes a head's graphs node by node, in the operators of native/GRAPH.md."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter import contract
from pilotfish.exporter.data_types import DATA_TYPES
from pilotfish.exporter.options import ModelFormats
from pilotfish.exporter.passes import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .tensor_source import TargetParts, TensorSource

OPSET = 21
IR_VERSION = 10


def new_plan(format_name: str, logit_ids: tuple[int, ...] | None = None) -> Plan:
    """The plan of a head's stored tensors, its own matrices all in one format; its graphs share it.

    logit_ids: the only ids that its output layers score; None: all that they have rows for.
    """
    return Plan(ModelFormats(format_name, format_name, format_name), logit_ids, {})


def num_scored(plan: Plan, num_rows: int) -> int:
    """Logits of an output layer that has so many rows."""
    return num_rows if plan.logit_ids is None else len(plan.logit_ids)


class GraphBuilder:
    """One graph."""

    def __init__(self, name: str, plan: Plan, source: TensorSource) -> None:
        """Start a graph whose matrices and vectors are added to `plan`."""
        self._name = name
        self._source = source
        self.plan = dataclasses.replace(plan, values={})  # values belong to one graph
        self._inputs: list[ir.Value] = []
        self._nodes: list[ir.Node] = []
        self._outputs: list[ir.Value] = []

    @property
    def target(self) -> TargetParts:
        """What the head is for."""
        return self._source.target

    def input(self, name: str, dtype: str, axes: Sequence[str | int]) -> ir.Value:
        """A new graph input."""
        value = ir.Value(name=name, type=ir.TensorType(DATA_TYPES[dtype]), shape=ir.Shape(axes))
        self._inputs.append(value)
        return value

    def output(self, value: ir.Value, name: str, axes: Sequence[str | int]) -> None:
        """Makes a node's result a graph output."""
        value.name, value.type, value.shape = name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(axes)
        self._outputs.append(value)

    def op(
        self, op_type: str, *inputs: ir.Value | None, attributes: Mapping[str, str | int | float] | None = None
    ) -> ir.Value:
        """A node of the contract's operators, which have one result."""
        node = ir.node(op_type, inputs, dict(attributes or {}), domain=contract.DOMAIN)
        self._nodes.append(node)
        return node.outputs[0]

    def gather_rows(self, x: ir.Value, rows: ir.Value) -> ir.Value:
        """The rows of x that `rows` names."""
        return self.op("GatherRows", x, rows)

    def join_columns(self, parts: Sequence[ir.Value]) -> ir.Value:
        """Rows side by side."""
        return self._join(parts, 1)

    def join_rows(self, parts: Sequence[ir.Value]) -> ir.Value:
        """Matrices below each other."""
        return self._join(parts, 0)

    def _join(self, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        while len(parts) > 1:
            first, rest = parts[: contract.MOST_JOINED], parts[contract.MOST_JOINED :]
            parts = [self.op("Join", *first, attributes={"axis": axis}), *rest]
        return parts[0]

    def split_rows(self, x: ir.Value, count: int) -> list[ir.Value]:
        """As many rows each."""
        return [self.op("RowsPart", x, attributes={"part": part, "num_parts": count}) for part in range(count)]

    def linear(
        self,
        x: ir.Value,
        name: str,
        sources: Sequence[str],
        *,
        bias: Sequence[str] = (),
        norm: tuple[str, float] | None = None,
        residual: ir.Value | None = None,
        swiglu: bool = False,
    ) -> ir.Value:
        """A packed Linear over the rows of `sources`; norm: weight and epsilon of an RMSNorm of x before it."""
        role = "lm_head" if name.startswith("lm_head") else "linear"
        target = self._source.target
        borrows = list(sources) == [target.lm_head] and self._source.borrows(target.lm_head)
        stored_as = target.lm_head_format if borrows else None
        parameters = [self._parameter(item) for item in sources]
        weight = self.plan.weight(name, parameters, role, interleaved=swiglu, stored_as=stored_as)
        attributes: dict[str, str | int | float] = {
            "format": weight.format,
            "in_features": weight.in_features,
            "out_features": weight.out_features,
            "activation": "swiglu" if swiglu else "none",
            "norm_epsilon": norm[1] if norm else 0.0,
        }
        stored_bias = self.vector(f"{weight.name}_bias", bias) if bias else None
        stored_norm = self.vector(f"{weight.name}_norm", [norm[0]]) if norm else None
        value = self.plan.value(weight.name)
        return self.op("Linear", x, value, stored_bias, stored_norm, residual, attributes=attributes)

    def embedding(self, ids: ir.Value, name: str, source: str, scale: float = 1.0) -> ir.Value:
        """Rows of a packed embedding."""
        target = self._source.target
        borrows = source == target.embedding and self._source.borrows(source)
        stored_as = target.embedding_format if borrows else None
        weight = self.plan.weight(name, [self._parameter(source)], "embedding", stored_as=stored_as)
        attributes: dict[str, str | int | float] = {
            "format": weight.format,
            "num_rows": weight.out_features,
            "num_columns": weight.in_features,
            "scale": scale,
        }
        value = self.plan.value(weight.name)
        return self.op("Embedding", ids, value, attributes=attributes)

    def rms_norm(
        self,
        x: ir.Value,
        name: str,
        source: str,
        epsilon: float,
        *,
        bias: ir.Value | None = None,
        activation: str = "none",
    ) -> ir.Value:
        """A norm whose result is needed more than once or not by a Linear, perhaps with a bias and an activation."""
        weight = self.vector(name, [source])
        attributes: dict[str, str | int | float] = {"norm": "rms", "activation": activation, "norm_epsilon": epsilon}
        return self.op("NormActivation", x, weight, bias, attributes=attributes)

    def silu_and_add(self, x: ir.Value, residual: ir.Value) -> ir.Value:
        """X * sigmoid(x) + residual."""
        attributes: dict[str, str | int | float] = {"norm": "none", "activation": "silu", "norm_epsilon": 0.0}
        return self.op("NormActivation", x, None, None, residual, attributes=attributes)

    def vector(self, name: str, sources: Sequence[str]) -> ir.Value:
        """A stored f32 vector."""
        return self.plan.vector(name, [self._parameter(item) for item in sources])

    def finish(self) -> ir.Model:
        """The graph as a model without its weights."""
        for name, value in self.plan.values.items():
            kind = ir.DataType.UINT8 if name in self.plan.weights else ir.DataType.FLOAT
            value.type = ir.TensorType(kind)
        imports = {"": OPSET, contract.DOMAIN: contract.DOMAIN_VERSION}
        graph = ir.Graph(self._inputs, self._outputs, nodes=self._nodes, opset_imports=imports, name=self._name)
        return ir.Model(graph, ir_version=IR_VERSION)

    def _parameter(self, name: str) -> ir.Value:
        shape = ir.Shape(self._source.shape(name))
        return self.plan.parameters.setdefault(name, ir.Value(name=name, shape=shape))
