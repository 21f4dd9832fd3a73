"""Pass 1: a traced decoder becomes a graph of row-wise nodes, without torch's batch and sequence axes.

A trace has one token in each batch entry, so that what is not attention acts on each token by itself. A value is known
by its core: the traced shape without axes of one element, [num_tokens, ...]. What depends on positions alone becomes a
table, what depends on parameters alone a stored vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import torch

from pilotfish.exporter.contract import DOMAIN

from .evaluate import Evaluator
from .match import refuse
from .row_graph import Kind, RowGraph, core_of
from .row_rules import RULES

if TYPE_CHECKING:
    from .plan import Plan

NUM_TOKENS = 1_000_003  # stands for the tokens' axis: no size of a model is equal to it


_SAME_ELEMENTS = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
# What token numbers may be made of others with; such values are tables of the vocabulary.
_OF_TOKENS = (*_SAME_ELEMENTS, "And", "Clip", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Where")
_DECIDED_BY_FIRST = ("CastLike", "Expand", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze")


class Lowering:
    """One traced graph on its way."""

    def __init__(self, traced: ir.Graph, plan: Plan, shared: dict[str, ir.Value]) -> None:
        self.plan = plan
        self.graph = RowGraph(plan, shared)
        self._kinds = {value: Kind.ROW if value.name == "input_ids" else Kind.POSITION for value in traced.inputs}
        self._cores: dict[ir.Value, ir.Value] = {}
        self._evaluate = Evaluator(self._meta)
        self._nothing = Evaluator(self._with_one_token)
        self._traced = traced
        self._num_ids = 0  # of the vocabulary; known at its first lookup

    def run(self) -> ir.Value:
        """Lowers every node and returns the logits, [num_tokens, vocab_size].

        Raises:
            UnsupportedModelError: an operator without a rule, one that works along the tokens' axis, or a result that
                has that axis elsewhere than in front. What a model computes along its sequence beside attention does
                not show in a trace of one token a sequence: `model_check` refuses such models, and parity finds others.
        """
        for node in self._traced:
            self._evaluate.run(node)
            kind = self._kind_of(node)
            for output in node.outputs:
                self._kinds[output] = kind
            if kind is not Kind.ROW or self._is_of_tokens(node.outputs[0]):
                continue
            for output in node.outputs:
                self._check_rows(node, self.shape(output))
            rule = RULES.get(node.op_type)
            if rule is None:
                raise refuse(node, f"it computes {node.op_type}, which is not supported")
            self.graph.place(node)
            rule(self, node)
        logits = self._traced.outputs[0]
        return self.graph.reshape(self.core(logits), core_of(self.shape(logits)))

    def _kind_of(self, node: ir.Node) -> Kind:
        if node.op_type in ("Shape", "Size"):
            return Kind.SIZE
        inputs = node.inputs[:1] if node.op_type in _DECIDED_BY_FIRST else node.inputs
        return max((self.kind(value) for value in inputs if value is not None), default=Kind.CONSTANT)

    def kind(self, value: ir.Value) -> Kind:
        """What a traced value depends on."""
        return self._kinds.get(value, Kind.CONSTANT)

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """The traced shape; the tokens' axis is NUM_TOKENS."""
        return tuple(self._evaluate(value).shape)

    def _check_rows(self, node: ir.Node, shape: tuple[int, ...]) -> None:
        if not shape or shape[0] != NUM_TOKENS or any(size % NUM_TOKENS == 0 and size for size in shape[1:]):
            raise refuse(node, f"its {node.op_type} does not act on each token by itself")
        if 0 in shape:
            raise refuse(node, f"its {node.op_type} leaves nothing of a row")

    def core(self, value: ir.Value) -> ir.Value:
        """The lowered value of a traced one that depends on tokens or positions."""
        if value not in self._cores:
            if self.kind(value) is not Kind.POSITION:
                raise refuse(self.graph.origin, f"it reads {value.name}, which is no row")
            shape = self.shape(value)
            self._check_rows(self.graph.origin, shape)
            self._cores[value] = self._typed(value, self.graph.table(value, core_of(shape)))
        return self._cores[value]

    def set_core(self, value: ir.Value, core: ir.Value) -> None:
        """Says what a traced value has become."""
        self._cores[value] = self.graph.reshape(core, core_of(self.shape(value)))

    def aligned(self, value: ir.Value, shape: tuple[int, ...], dropped: set[int]) -> ir.Value:
        """A value for an elementwise node that makes `shape`, whose axes `dropped` are left out."""
        own = self.shape(value)
        padded = (1,) * (len(shape) - len(own)) + own
        if self.kind(value) in (Kind.CONSTANT, Kind.SIZE):
            return self.constant(value, tuple(size for axis, size in enumerate(padded) if axis not in dropped))
        self._check_rows(self.graph.origin, padded)
        wanted = tuple(size for axis, size in enumerate(padded) if axis > 0 and axis not in dropped)
        return self.graph.reshape(self.core(value), wanted)

    def constant(self, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        """A value of parameters and numbers alone, broadcast to rows: a number in the graph, or a stored vector."""
        if self.kind(value) not in (Kind.CONSTANT, Kind.SIZE):
            raise refuse(self.graph.origin, f"it needs {value.name} as a constant")
        while shape and shape[0] == 1:
            shape = shape[1:]
        if value.name in self.plan.parameters and len(shape) == 1 and self.shape(value) == shape:
            return self.graph.parameter(value)
        if self._depends_on_parameters(value) or torch.Size(shape).numel() > 1:
            return self._typed(value, self.graph.derived(value, shape or (1,)))
        return self.graph.number(self.numbers(value).reshape(()))

    def _typed(self, value: ir.Value, stored: ir.Value) -> ir.Value:
        """Stored numbers as what they stand for: tables and vectors are f32."""
        return self.graph.condition(stored) if self._evaluate(value).dtype == torch.bool else stored

    def numbers(self, value: ir.Value) -> torch.Tensor:
        """The elements of a constant."""
        if self.kind(value) not in (Kind.CONSTANT, Kind.SIZE):
            raise refuse(self.graph.origin, f"it needs {value.name} as a constant")
        return self._nothing(value)

    def integers(self, value: ir.Value | None) -> list[int]:
        """Elements of a constant that decides about shapes; sizes have NUM_TOKENS for the tokens."""
        if value is None:
            return []
        found = self._evaluate(value)
        if found.is_meta:
            raise refuse(self.graph.origin, f"it needs {value.name} as a constant")
        return [int(item) for item in found.reshape(-1).tolist()]

    def _is_of_tokens(self, value: ir.Value) -> bool:
        """Whether it is one number for each token, which no other token and no position decides."""
        pending, seen, reads_tokens = [value], set(), False
        while pending:
            item = pending.pop()
            if item in seen or self.kind(item) < Kind.POSITION:
                continue
            seen.add(item)
            node = item.producer()
            if node is None and item.name != "input_ids":
                return False
            reads_tokens = reads_tokens or node is None
            if node is not None and node.op_type not in _OF_TOKENS:
                return False
            pending += [] if node is None else [found for found in node.inputs if found is not None]
        return reads_tokens and not self._evaluate(value).is_floating_point()

    def looked_up(self, indices: ir.Value, num_rows: int) -> dict[str, list[int]] | None:
        """The row of each token, if they are not all rows as they come; None: more than tokens decides."""
        if not self._is_of_tokens(indices):
            return None
        self._num_ids = self._num_ids or num_rows  # the first lookup is that of the whole vocabulary
        rows = self._for_tokens(indices, self._num_ids).tolist()
        return {} if rows == list(range(num_rows)) else {"rows": rows}

    def _for_tokens(self, value: ir.Value, num_tokens: int) -> torch.Tensor:
        """What a value of tokens alone is for tokens 0, 1, ..., [num_tokens]."""
        tokens = torch.arange(num_tokens)[:, None]
        return Evaluator(lambda item: tokens if item.name == "input_ids" else self._with_one_token(item))(
            value
        ).reshape(-1)

    def _depends_on_parameters(self, value: ir.Value) -> bool:
        pending, seen = [value], set()
        while pending:
            item = pending.pop()
            if item in seen:
                continue
            seen.add(item)
            if item.name in self.plan.parameters and item.name not in self.plan.buffers:
                return True
            node = item.producer()
            pending += [] if node is None else [found for found in node.inputs if found is not None]
        return False

    def _meta(self, value: ir.Value) -> torch.Tensor | None:
        if value in self._traced.inputs:
            return torch.empty((NUM_TOKENS, 1), dtype=torch.int64, device="meta")
        if value.name in self.plan.parameters:
            return torch.empty(self.plan.shape(str(value.name)), device="meta")
        return None

    def _with_one_token(self, value: ir.Value) -> torch.Tensor | None:
        if value in self._traced.inputs:
            return torch.zeros((1, 1), dtype=torch.int64)
        return self.plan.buffers.get(str(value.name))


def lower(model: ir.Model, plan: Plan, shared: dict[str, ir.Value]) -> None:
    """Replaces a traced graph by its lowering, in which `Attention` and `Projection` are left for later passes."""
    traced = model.graph
    lowering = Lowering(traced, plan, shared)
    logits = lowering.run()
    graph = ir.Graph(
        [],
        [logits],
        nodes=lowering.graph.nodes,
        initializers=(),
        doc_string=traced.doc_string,
        opset_imports=dict(traced.opset_imports) | {DOMAIN: 1},
        name=traced.name,
    )
    model.graph = graph
