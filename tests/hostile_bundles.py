"""Bundles whose graph does what no exporter writes: with right sizes and hashes, so that only a reading of it can tell.

``onnx`` is imported where a graph is forged: the tests with the oldest versions get these bundles ready made.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Graph = Any  # an onnx.ModelProto, whose package has no types
GRAPH = "target.onnx"


def copy_with_graph(bundle: Path, out: Path, change: Callable[[bytes], bytes]) -> Path:
    """A copy of a bundle with another graph, whose size and hash its manifest has."""
    shutil.copytree(bundle, out)
    content = change((out / GRAPH).read_bytes())
    (out / GRAPH).write_bytes(content)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["models"]["target"]["graph"] |= {
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (out / "manifest.json").write_text(json.dumps(manifest))
    return out


def edited(change: Callable[[Graph], None]) -> Callable[[bytes], bytes]:
    """The change of a graph's message as one of its bytes."""

    def apply(content: bytes) -> bytes:
        import onnx

        model = onnx.load_from_string(content)
        change(model)
        return model.SerializeToString()

    return apply


def _stolen(location: str) -> Callable[[Graph], None]:
    """A tensor that the manifest does not list, in another file."""

    def change(model: Graph) -> None:
        tensor = model.graph.initializer.add(name="stolen", data_type=2, dims=[16], data_location=1)
        for key, value in (("location", location), ("offset", "0"), ("length", "16")):
            tensor.external_data.add(key=key, value=value)

    return change


def _moved(key: str, value: str) -> Callable[[Graph], None]:
    """A tensor of the manifest, elsewhere."""

    def change(model: Graph) -> None:
        next(entry for entry in model.graph.initializer[0].external_data if entry.key == key).value = value

    return change


def _node(operator: str, inputs: list[str], output: str, **attributes: Any) -> Callable[[Graph], None]:
    def change(model: Graph) -> None:
        from onnx import helper

        domain = attributes.pop("domain", "")
        model.graph.node.append(helper.make_node(operator, inputs, [output], domain=domain, **attributes))

    return change


def _constant(model: Graph, name: str, values: list[int]) -> None:
    from onnx import helper

    model.graph.initializer.append(helper.make_tensor(name, 7, [len(values)], values))


def _sized_by(operator: str, values: list[int], *inputs: str) -> Callable[[Graph], None]:
    """A node whose last input, a constant, says how large its output is."""

    def change(model: Graph) -> None:
        _constant(model, "size", values)
        _node(operator, [*inputs, "size"], "large")(model)

    return change


def _loop(model: Graph) -> None:
    from onnx import helper

    names = [("turn", 7), ("condition", 9)]
    inputs = [helper.make_tensor_value_info(name, kind, []) for name, kind in names]
    outputs = [helper.make_tensor_value_info("again", 9, [])]
    body = helper.make_graph([helper.make_node("Identity", ["condition"], ["again"])], "body", inputs, outputs)
    model.graph.initializer.append(helper.make_tensor("turns", 7, [], [1 << 62]))
    model.graph.node.append(helper.make_node("Loop", ["turns", ""], [], body=body))


def _branch(model: Graph) -> None:
    from onnx import helper

    then = helper.make_graph([], "then", [], [])
    model.graph.node.append(helper.make_node("Add", ["input_ids", "input_ids"], ["sum"], then_branch=then))


def _doubling(model: Graph) -> None:
    for index in range(40):
        name = "input_ids" if index == 0 else f"doubled.{index - 1}"
        _node("Concat", [name, name], f"doubled.{index}", axis=0)(model)


def _function(model: Graph) -> None:
    from onnx import helper

    node = helper.make_node("Exp", ["x"], ["y"])
    opsets = [helper.make_opsetid("", 20)]
    model.functions.append(helper.make_function("pilotfish", "Linear", ["x"], ["y"], [node], opsets))


def _huge_constant(model: Graph) -> None:
    model.graph.initializer.add(name="huge", data_type=1, dims=[1 << 40])


def _nested(content: bytes) -> bytes:
    """Graphs in attributes of nodes of graphs, 2,000 deep."""
    inner = b""
    for _ in range(2000):
        attribute = b"\x0a\x01g" + b"\x32" + _length(inner) + inner + b"\xa0\x01\x05"
        node = b"\x22\x02If" + b"\x2a" + _length(attribute) + attribute
        inner = b"\x0a" + _length(node) + node
    return b"\x3a" + _length(inner) + inner + content


def _length(content: bytes) -> bytes:
    value, encoded = len(content), b""
    while value >= 0x80:
        encoded += bytes([0x80 | (value & 0x7F)])
        value >>= 7
    return encoded + bytes([value])


# By name: the change, and what the error says.
FORGERIES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "absolute": (edited(_stolen("/etc/passwd")), "allowed are the manifest's tensors"),
    "parent": (edited(_stolen("../secret")), "allowed are the manifest's tensors"),
    "link": (edited(_stolen("link")), "allowed are the manifest's tensors"),
    "memory": (edited(_stolen("*/_ORT_MEM_ADDR_/*")), "allowed are the manifest's tensors"),
    "moved": (edited(_moved("location", "/etc/passwd")), "the manifest has it in target.bin"),
    "offset": (edited(_moved("offset", "4096")), "the manifest has it in target.bin"),
    "length": (edited(_moved("length", "1")), "the manifest has it in target.bin"),
    "loop": (edited(_loop), "Loop"),
    "branch": (edited(_branch), "the field 6"),
    "constant-of-shape": (edited(_sized_by("ConstantOfShape", [1 << 30])), "ConstantOfShape"),
    "expand": (edited(_sized_by("Expand", [1 << 40, 1], "input_ids")), "elements for each row"),
    "tile": (edited(_sized_by("Tile", [1 << 40], "input_ids")), "Tile"),
    "random": (edited(_node("RandomNormal", [], "noise", shape=[1 << 30])), "RandomNormal"),
    "foreign": (edited(_node("Attention", ["input_ids"], "x", domain="com.microsoft")), 'domain "com.microsoft"'),
    "doubling": (edited(_doubling), "elements for each row"),
    "function": (edited(_function), "the field 25"),
    "huge-constant": (edited(_huge_constant), "constants of more than 65536 bytes"),
    "truncated": (lambda content: content[: len(content) // 2], "is cut short"),
    "varint": (lambda content: content + b"\x08" + b"\xff" * 9 + b"\x7f", "more than 64 bits"),
    "nested": (_nested, "the field 6"),
    "other-format": (lambda content: b"\x5a\x06\0\0ORTM" + content, "the field 11"),
}


def forge(plain: Path, out: Path) -> Path:
    """A folder of bundles, one for each forgery of ``plain``."""
    out.mkdir(parents=True)
    (out / "secret").write_bytes(b"x" * 64)
    for name, (change, _) in FORGERIES.items():
        copy_with_graph(plain, out / name, change)
        (out / name / "link").symlink_to(out / "secret")
    return out


def row_wise(model: Graph) -> None:
    """The logits by way of further nodes, some of which ONNX Runtime computes while it loads the graph."""
    from onnx import helper

    last = model.graph.node[-1]
    last.output[0] = "raw"
    norm = last.input[3]
    _constant(model, "axes", [0])
    zero = helper.make_tensor("zero", 1, [], [0.0])
    model.graph.initializer.append(zero)
    for operator, inputs, output in (
        ("Neg", [norm], "negative"),
        ("ReduceMax", ["negative", "axes"], "most"),
        ("Mul", ["most", "zero"], "nothing"),
        ("Sub", ["raw", "nothing"], "shifted"),
        ("Identity", ["shifted"], "logits"),
    ):
        _node(operator, inputs, output)(model)
