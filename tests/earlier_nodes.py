"""Bundles as they were before the operators GatherRows, Join, RowsPart and NormActivation: with ONNX's own nodes."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import onnx
from onnx import helper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

OPERATORS = ("GatherRows", "Join", "RowsPart", "NormActivation")


def with_earlier_nodes(bundle: Path, copy: Path) -> Path:
    """A copy of a bundle whose graphs compute the same with nodes of ONNX and of ONNX Runtime."""
    shutil.copytree(bundle, copy)
    content = json.loads((copy / "manifest.json").read_text())
    for entry in _graphs(content):
        path = copy / entry["file"]
        model = onnx.load(path, load_external_data=False)
        nodes = [new for node in model.graph.node for new in _earlier(node, model.graph.node)]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        path.write_bytes(model.SerializeToString())
        entry.update(bytes=path.stat().st_size, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    (copy / "manifest.json").write_text(json.dumps(content))
    return copy


def operators_of(bundle: Path) -> set[str]:
    """Those that are not of the domain pilotfish, of all graphs."""
    content = json.loads((bundle / "manifest.json").read_text())
    graphs = [onnx.load(bundle / entry["file"], load_external_data=False).graph for entry in _graphs(content)]
    return {node.op_type for graph in graphs for node in graph.node if node.domain != "pilotfish"}


def _graphs(content: dict[str, Any]) -> list[dict[str, Any]]:
    models = [model["graph"] for model in content["models"].values()]
    return [*models, *((content.get("head") or {}).get("graphs") or {}).values()]


def _earlier(node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    (result,) = node.output
    if node.domain != "pilotfish" or node.op_type not in OPERATORS:
        yield node
    elif node.op_type == "GatherRows":
        yield helper.make_node("Gather", node.input, [result], axis=0, name=f"{result}.picked")
    elif node.op_type == "Join":
        yield helper.make_node("Concat", node.input, [result], axis=values["axis"])
    elif node.op_type == "RowsPart":
        if values["part"] == 0:
            others = [other for other in nodes if other.op_type == "RowsPart" and other.input == node.input]
            outputs = [other.output[0] for other in others]
            yield helper.make_node("Split", node.input, outputs, axis=0, num_outputs=len(outputs))
    else:
        yield from _norm(node, values)


def _norm(node: onnx.NodeProto, values: dict[str, Any]) -> Iterator[onnx.NodeProto]:
    x, weight, bias, residual = [*node.input, "", "", ""][:4]
    made: list[onnx.NodeProto] = []

    def add(op_type: str, *inputs: str, **attributes: Any) -> str:
        made.append(helper.make_node(op_type, inputs, [f"{node.output[0]}.{len(made)}"], **attributes))
        return str(made[-1].output[0])

    if values["norm"] == b"rms":
        x = add("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=values["norm_epsilon"], stash_type=1)
    if bias:
        x = add("Add", x, bias)
    if values["activation"] == b"silu":
        x = add("Mul", x, add("Sigmoid", x))
    if values["activation"] == b"gelu":
        x = add("Gelu", x, approximate="none")
    if residual:
        add("Add", residual, x)
    made[-1].output[0] = node.output[0]
    yield from made
