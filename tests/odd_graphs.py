"""Random graphs of operators that may be in a decoder, with odd attributes, and what ONNX Runtime makes of them.

`Graph` as it is, and lowered as an export does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from pilotfish.exporter.derived import with_derived
from pilotfish.exporter.passes.canonical import canonicalise
from pilotfish.exporter.passes.lower import lower
from pilotfish.exporter.passes.ports import shared_inputs
from pilotfish.exporter.rotary_tables import rotary_tables

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]
NUM_TOKENS = 5  # no other size is
NUM_IDS = 11
HIDDEN = 12
TRIES = 6
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
onnxruntime.set_default_logger_severity(4)


class Graph:
    """A traced decoder without layers, as it grows: names of values, nodes, and numbers that the nodes read."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.parameters = {
            "embedding": rng.normal(size=(NUM_IDS, HIDDEN)).astype(np.float32),
            "layer.vector": rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32),
            "layer.columns": np.asarray([3, 0], dtype=np.float32),
            "layer.bound": np.asarray(0.4, dtype=np.float32),
        }
        self.nodes = [helper.make_node("Gather", ["embedding", "input_ids"], ["x0"])]
        self.constants: dict[str, Array] = {}
        self.last = "x0"
        self.shape: tuple[int, ...] = (NUM_TOKENS, 1, HIDDEN)

    def number(self, values: object, dtype: type = np.int64) -> str:
        name = f"number.{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype=dtype)
        return name

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Adds a node and returns its first result."""
        names = [f"x{len(self.nodes)}" + (f".{index}" if index else "") for index in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0]

    def proto(self) -> onnx.ModelProto:
        ports = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["num_tokens", 1])
            for name in ("input_ids", "position_ids")
        ]
        stored = [numpy_helper.from_array(value, name) for name, value in (self.parameters | self.constants).items()]
        result = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "main", ports, [result], stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _run(model: onnx.ModelProto, **inputs: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {item.name for item in session.get_inputs()}
    found: Array = session.run(None, {name: value for name, value in inputs.items() if name in wanted})[0]
    return found


IDS = np.asarray([3, 10, 0, 7, 7])
POSITIONS = np.asarray([0, 1, 2, 3, 4])


def run_whole(graph: Graph) -> Array:
    """What ONNX Runtime makes of the graph as it is."""
    return _run(graph.proto(), input_ids=IDS[:, None], position_ids=POSITIONS[:, None])


class _Source:
    """A checkpoint of the graph's parameters."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def read(self, name: str) -> Array:
        return self._graph.parameters[name]


def run_lowered(graph: Graph) -> Array:
    """What it makes of the lowering, whose own operators are looked up and multiplied here."""
    model = ir.from_proto(graph.proto())
    for name in graph.parameters:
        model.graph.initializers[name].const_value = None
    plan = canonicalise(model, None, None, {})  # type: ignore[arg-type]
    shared = shared_inputs()
    lower(model, plan, shared)
    source: Any = with_derived(_Source(graph), plan)  # type: ignore[arg-type]
    ids = ir.Value(name="input_ids", type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(["num_tokens"]))
    lowered = model.graph
    lowered.inputs.extend([ids, shared["position_ids"]])
    for node in list(lowered):
        if node.op_type == "Lookup":
            picked = ir.node("Gather", [node.inputs[0], ids])
            lowered.insert_before(node, picked)
            ir.convenience.replace_all_uses_with(node.outputs[0], picked.outputs[0], replace_graph_outputs=True)
            lowered.remove(node, safe=True)
    stored = rotary_tables(plan, source, NUM_TOKENS)
    for value in {value for node in lowered for value in node.inputs if value is not None and value.producer() is None}:
        name = str(value.name)
        value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
        if value.const_value is None and not value.is_graph_input():
            value.const_value = ir.tensor(stored[name] if name in stored else source.read(name))
        if not value.is_graph_input():
            lowered.register_initializer(value)
    lowered.outputs[0].name = "logits"
    lowered.outputs[0].dtype = ir.DataType.FLOAT
    return _run(ir.to_proto(model), input_ids=IDS.astype(np.int32), position_ids=POSITIONS.astype(np.int32))


def _slice(graph: Graph, rng: random.Random) -> str:
    numbers = [
        rng.choice([0, 1, -1, 2, -3, -4, 40, INT_MAX]),
        rng.choice([INT_MAX, 3, 8, -1, -2, 100, INT_MIN]),
        rng.choice([2, -1, 1]),
        rng.choice([1, 1, 2, 3, -1, -2]),
    ]
    given = [graph.number([number]) for number in numbers[: rng.choice([4, 4, 3])]]
    return graph.node("Slice", graph.last, *given)


def _split(graph: Graph, rng: random.Random) -> str:
    axis = rng.choice([-1, 2, 1])
    if rng.random() < 0.5:
        return graph.node("Split", graph.last, outputs=2, axis=axis, num_outputs=2)
    first = rng.choice([1, 2, 5])
    size = graph.shape[axis % len(graph.shape)]
    return graph.node("Split", graph.last, graph.number([first, size - first]), outputs=2, axis=axis)


def _transpose(graph: Graph, rng: random.Random) -> str:
    order = list(range(len(graph.shape)))
    rng.shuffle(order)
    return graph.node(
        "Transpose", graph.last, **rng.choice([{}, {"perm": order}, {"perm": [0, *range(len(graph.shape) - 1, 0, -1)]}])
    )


def _reduce(graph: Graph, rng: random.Random) -> str:
    kind = rng.choice(["ReduceMean", "ReduceSum", "ReduceMax"])
    inputs = [graph.last]
    if rng.random() < 0.8:
        inputs.append(graph.number(rng.choice([[-1], [1], [2], [1, 2], [-1, 1], [0], []])))
    attributes = {"keepdims": rng.choice([0, 1])} if rng.random() < 0.8 else {}
    if rng.random() < 0.5:
        attributes["noop_with_empty_axes"] = rng.choice([0, 1])
    return graph.node(kind, *inputs, **attributes)


def _softmax(graph: Graph, rng: random.Random) -> str:
    return graph.node("Softmax", graph.last, **rng.choice([{}, {"axis": 1}, {"axis": -1}, {"axis": 2}, {"axis": 0}]))


def _layer_norm(graph: Graph, rng: random.Random) -> str:
    size = graph.shape[-1]
    scale = rng.choice([graph.number(np.linspace(0.5, 1.5, size), np.float32), "layer.vector"])
    attributes: dict[str, Any] = rng.choice([{}, {"axis": -1}, {"axis": 2, "epsilon": 0.1}, {"axis": 1}])
    return graph.node("LayerNormalization", graph.last, scale, outputs=rng.choice([1, 1, 3]), **attributes)


def _concat(graph: Graph, rng: random.Random) -> str:
    axis = rng.choice([-1, 1, 2, 0])
    constant = graph.number(np.ones(graph.shape), np.float32)
    others = rng.choice([[], [graph.last], [graph.last, graph.last], [constant]])
    return graph.node("Concat", graph.last, *others, axis=axis)


def _gather(graph: Graph, rng: random.Random) -> str:
    picked = rng.choice([0, -1, [0], [2, -1, 0], [[0, 1], [2, 3]], [1, 1]])
    indices = graph.number(picked) if rng.random() < 0.8 else "position_ids"
    return graph.node("Gather", graph.last, indices, **rng.choice([{"axis": -1}, {"axis": 2}, {"axis": 1}, {}]))


def _expand(graph: Graph, rng: random.Random) -> str:
    return graph.node(
        "Expand", graph.last, graph.number(rng.choice([[1], [1, 3, 1], [NUM_TOKENS, 2, 1], [2, 1, 1, 1]]))
    )


def _reshape(graph: Graph, rng: random.Random) -> str:
    wanted = rng.choice([[0, 0, -1], [-1, 1, 3, 4], [NUM_TOKENS, -1], [0, 3, -1], [-1, 2, 6], [1, -1], [0, -1, 1]])
    return graph.node("Reshape", graph.last, graph.number(wanted), **rng.choice([{}, {}, {"allowzero": 1}]))


def _squeeze(graph: Graph, rng: random.Random) -> str:
    inputs = [graph.number(rng.choice([[1], [-2], [0]]))] if rng.random() < 0.6 else []
    return graph.node("Squeeze", graph.last, *inputs)


def _unsqueeze(graph: Graph, rng: random.Random) -> str:
    return graph.node("Unsqueeze", graph.last, graph.number(rng.choice([[1], [-1], [1, -1], [0], [2]])))


def _clip(graph: Graph, rng: random.Random) -> str:
    low, high = graph.number(-0.5, np.float32), graph.number(0.25, np.float32)
    return graph.node("Clip", graph.last, *rng.choice([[], [low], ["", high], [low, high], [low, "layer.bound"]]))


def _cast(graph: Graph, rng: random.Random) -> str:
    kinds = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8, TensorProto.FLOAT16, TensorProto.BOOL)
    return graph.node("Cast", graph.node("Cast", graph.last, to=rng.choice(kinds)), to=TensorProto.FLOAT)


def _where(graph: Graph, rng: random.Random) -> str:
    half = graph.number(0.5, np.float32)
    two = graph.number(2)
    conditions: list[Callable[[], str]] = [
        lambda: graph.node("Greater", graph.last, half),
        lambda: graph.node("Unsqueeze", graph.node("Less", "position_ids", two), graph.number([1])),
        lambda: graph.number(np.arange(graph.shape[-1]) % 2 == 0, np.bool_),
        lambda: graph.number(rng.choice([True, False]), np.bool_),
    ]
    return graph.node("Where", rng.choice(conditions)(), graph.last, half)


def _elementwise(graph: Graph, rng: random.Random) -> str:
    size = graph.shape[-1]
    others = [
        graph.number(np.linspace(-1, 1, size), np.float32),
        graph.number([[0.5]], np.float32),
        "layer.vector",
        graph.node("Cast", graph.node("Unsqueeze", "position_ids", graph.number([2])), to=TensorProto.FLOAT),
        graph.last,
    ]
    pair = [graph.last, rng.choice(others)]
    rng.shuffle(pair)
    return graph.node(rng.choice(["Add", "Sub", "Mul", "Max", "Min"]), *pair)


def _unary(graph: Graph, rng: random.Random) -> str:
    kind = rng.choice(["Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Exp", "Gelu"])
    attributes = rng.choice([{}, {"approximate": "tanh"}]) if kind == "Gelu" else {}
    return graph.node(kind, graph.last, **attributes)


KINDS = (
    *(_slice, _split, _transpose, _reduce, _softmax, _layer_norm, _concat, _gather, _expand, _reshape, _squeeze),
    *(_unsqueeze, _clip, _cast, _where, _elementwise, _unary),
)


def grow(graph: Graph, rng: random.Random) -> None:
    """One more operator, of which ONNX Runtime can make something."""
    for _ in range(TRIES):
        nodes, constants, last = list(graph.nodes), dict(graph.constants), graph.last
        graph.last = rng.choice(KINDS)(graph, rng)
        try:
            graph.shape = run_whole(graph).shape
        except Exception:  # noqa: BLE001 - of ONNX Runtime, which says that this is no graph
            graph.nodes, graph.constants, graph.last = nodes, constants, last
        else:
            return
