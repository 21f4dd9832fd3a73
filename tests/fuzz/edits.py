"""Edits of a bundle, as data: a recipe is a kind of bundle and a list of edits, and applies to today's export of it.

An edit is a list of a name and its arguments:

* ["set", [path], value], ["remove", [path]]: of manifest.json; an index that is too large is taken modulo the length.
* ["text", file, from, to]: in a text file, all occurrences.
* ["bytes", file, {position: byte}]; ["resize", file, fraction]: the file's bytes, hashes and sizes follow.
* ["session", part, value]: of the saved session: a text, bytes {position: byte}, a length, or the number of a count and
  its value; its hashes follow, and it is of the bundle that the other edits make.
* ["link", file, destination]: the file is a symbolic link.
* ["operator", graph, node, domain, type]; ["attribute", graph, node, name, value]; ["drop", graph, node].
* ["rewire", graph, node, input, name]: the name of a tensor, or the number of one among all that the graph has.
* ["initializer", graph, number, name or null, shape or null, external data or null].
* ["port", graph, "input" or "output", number, shape]: declared shapes.
* ["insert", graph, node, type, binary, constant]: an ONNX node of a constant, or of the old input and a constant, is a
  node's first input.
* ["loop", graph, node, trips]: a node's first input goes through a Loop.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from sessions import SessionParts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Edit = list[Any]
SESSION = "session"
ONNX_OPSET = 18


class Seed:
    """A bundle in memory, never changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        self.manifest = json.loads(self.files["manifest.json"])
        self.graphs = {
            name: onnx.ModelProto.FromString(data) for name, data in self.files.items() if name.endswith(".onnx")
        }

    @property
    def data_files(self) -> list[str]:
        return [name for name in self.files if name != "manifest.json"]


class EditedBundle:
    """A copy of a seed that edits change."""

    def __init__(self, seed: Seed) -> None:
        self._seed = seed
        self.manifest = json.loads(seed.files["manifest.json"])
        self._files: dict[str, bytes] = {}
        self._graphs: dict[str, onnx.ModelProto] = {}
        self._links: dict[str, str] = {}
        self._session = SessionParts.parse(seed.files[SESSION]) if SESSION in seed.files else None

    def apply(self, edits: list[Edit]) -> None:
        """Edits of what earlier edits removed have no effect, so that any part of a recipe is one."""
        for name, *arguments in edits:
            edit: Callable[..., None] = getattr(self, f"_edit_{name}")
            try:
                edit(*arguments)
            except (LookupError, TypeError, ValueError, ZeroDivisionError):
                continue

    def write(self, folder: Path) -> None:
        """The bundle; files that no edit changed are hard links to the seed's."""
        folder.mkdir(parents=True)
        for name, graph in self._graphs.items():
            self._files[name] = graph.SerializeToString()
        for name in self._seed.data_files:
            if name in self._links:
                (folder / name).symlink_to(self._links[name])
            elif name in self._files:
                (folder / name).write_bytes(self._files[name])
            else:
                os.link(self._seed.folder / name, folder / name)
        self._describe(self.manifest)
        manifest = json.dumps(self.manifest).encode()
        (folder / "manifest.json").write_bytes(manifest)
        if self._session and SESSION not in self._files and SESSION not in self._links:
            if self._session.bundle == self._seed_hash():
                self._session.bundle = hashlib.sha256(manifest).hexdigest().encode()
            (folder / SESSION).unlink()
            (folder / SESSION).write_bytes(self._session.compose())

    def _seed_hash(self) -> bytes:
        return hashlib.sha256(self._seed.files["manifest.json"]).hexdigest().encode()

    def _describe(self, part: Any) -> None:
        """Sizes and hashes of changed files."""
        if isinstance(part, dict):
            name = part.get("file")
            if isinstance(name, str) and name in self._files:
                data = self._files[name]
                part |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            part = list(part.values())
        if isinstance(part, list):
            for inner in part:
                self._describe(inner)

    def _data(self, name: str) -> bytes:
        return self._files.get(name, self._seed.files[name])

    def _graph(self, name: str) -> onnx.GraphProto:
        if name not in self._graphs:
            self._graphs[name] = onnx.ModelProto()
            self._graphs[name].CopyFrom(self._seed.graphs[name])
        return self._graphs[name].graph

    def _node(self, name: str, index: int) -> onnx.NodeProto:
        nodes = self._graph(name).node
        return nodes[index % len(nodes)]

    def _place(self, path: list[Any]) -> tuple[Any, Any]:
        """The part of the manifest that holds a value, and the value's key there."""
        part = reduce(lambda inner, key: inner[_key(inner, key)], path[:-1], self.manifest)
        return part, _key(part, path[-1])

    def _edit_set(self, path: list[Any], value: Any) -> None:
        part, key = self._place(path)
        part[key] = value

    def _edit_remove(self, path: list[Any]) -> None:
        part, key = self._place(path)
        del part[key]

    def _edit_text(self, name: str, old: str, new: str) -> None:
        self._files[name] = self._data(name).replace(old.encode(), new.encode())

    def _edit_bytes(self, name: str, changes: dict[str, int]) -> None:
        data = bytearray(self._data(name))
        for position, byte in changes.items():
            data[int(position) % len(data)] = byte
        self._files[name] = bytes(data)

    def _edit_resize(self, name: str, fraction: float) -> None:
        data = self._data(name)
        size = int(len(data) * fraction)
        self._files[name] = (data + bytes(max(size - len(data), 0)))[:size]

    def _edit_session(self, part: str, value: Any) -> None:
        if self._session is None:
            return
        if part == "count":
            index, count = value
            self._session.counts[index % 3] = count
            return
        data = bytearray(getattr(self._session, part))
        if isinstance(value, str):
            data = bytearray(value.encode())
        elif isinstance(value, int):
            data = (data + bytes(max(value - len(data), 0)))[:value]
        else:
            for position, byte in value.items():
                data[int(position) % len(data)] = byte
        setattr(self._session, part, bytes(data))

    def _edit_link(self, name: str, destination: str) -> None:
        self._links[name] = destination

    def _edit_operator(self, name: str, node: int, domain: str, op_type: str) -> None:
        found = self._node(name, node)
        found.domain, found.op_type = domain, op_type
        self._import(name, domain)

    def _import(self, name: str, domain: str) -> None:
        imported = self._graphs[name].opset_import
        if domain not in {each.domain for each in imported}:
            imported.append(helper.make_opsetid(domain, 1 if domain else ONNX_OPSET))

    def _edit_attribute(self, name: str, node: int, attribute: str, value: Any) -> None:
        found = self._node(name, node)
        kept = [each for each in found.attribute if each.name != attribute]
        del found.attribute[:]
        found.attribute.extend(kept if value is None else [*kept, helper.make_attribute(attribute, value)])

    def _edit_drop(self, name: str, node: int) -> None:
        nodes = self._graph(name).node
        del nodes[node % len(nodes)]

    def _edit_rewire(self, name: str, node: int, index: int, tensor: str | int) -> None:
        found = self._node(name, node)
        if isinstance(tensor, int):
            names = self._tensors(name)
            tensor = names[tensor % len(names)]
        found.input[index % len(found.input)] = tensor

    def _tensors(self, name: str) -> list[str]:
        graph = self._graph(name)
        made = [output for node in graph.node for output in node.output]
        return [each.name for part in (graph.input, graph.initializer) for each in part] + made

    def _edit_initializer(
        self, name: str, index: int, new_name: str | None, shape: list[int] | None, external: dict[str, str] | None
    ) -> None:
        initializers = self._graph(name).initializer
        tensor = initializers[index % len(initializers)]
        if new_name is not None:
            for node in self._graph(name).node:
                node.input[:] = [new_name if each == tensor.name else each for each in node.input]
            tensor.name = new_name
        if shape is not None:
            tensor.dims[:] = shape
        if external is not None:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            del tensor.external_data[:]
            for key, value in external.items():
                tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))

    def _edit_port(self, name: str, side: str, index: int, shape: list[int | str]) -> None:
        ports = getattr(self._graph(name), side)
        port = ports[index % len(ports)]
        kind = port.type.tensor_type.elem_type
        port.CopyFrom(helper.make_tensor_value_info(port.name, kind, shape))

    def _edit_insert(self, name: str, node: int, op_type: str, binary: bool, constant: Any) -> None:  # noqa: FBT001
        found = self._node(name, node)
        graph = self._graph(name)
        values = numpy_helper.from_array(np.array(constant), "fuzz.constant")
        graph.initializer.append(values)
        inputs = [found.input[0], "fuzz.constant"] if binary else ["fuzz.constant"]
        graph.node.insert(node % len(graph.node), helper.make_node(op_type, inputs, ["fuzz.made"]))
        found.input[0] = "fuzz.made"
        self._import(name, "")

    def _edit_loop(self, name: str, node: int, trips: int) -> None:
        found = self._node(name, node)
        graph = self._graph(name)
        value = [helper.make_empty_tensor_value_info(f"fuzz.{each}") for each in ("x", "y")]
        flags = [helper.make_tensor_value_info(f"fuzz.{each}", onnx.TensorProto.BOOL, []) for each in ("go", "on")]
        turn = helper.make_tensor_value_info("fuzz.turn", onnx.TensorProto.INT64, [])
        nodes = [helper.make_node("Identity", [f"fuzz.{a}"], [f"fuzz.{b}"]) for a, b in (("go", "on"), ("x", "y"))]
        body = helper.make_graph(nodes, "fuzz.body", [turn, flags[0], value[0]], [flags[1], value[1]])
        graph.initializer.append(numpy_helper.from_array(np.array(trips), "fuzz.trips"))
        made = helper.make_node("Loop", ["fuzz.trips", "", found.input[0]], ["fuzz.looped"], body=body)
        found.input[0] = "fuzz.looped"
        graph.node.insert(node % len(graph.node), made)
        self._import(name, "")


def _key(part: Any, key: Any) -> Any:
    return key % len(part) if isinstance(part, list) and isinstance(key, int) else key
