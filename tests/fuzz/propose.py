"""Random recipes: each changes related parts of a bundle together, so that the change gets past the first check."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from edits import Edit, Seed

MOST_CHANGES = 3
_OF_SESSIONS = 0.7  # changes of a bundle that has one
_SIZES = (0, 1, 2, 3, 7, 16, 63, 64, 65, 255, 256, 257, 258, 259, 512, 4096, 65535, 65536, 2**20, 2**30)
_HUGE = (2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -1, -(2**31), -(2**63))
_DIMS = ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim", "max_positions")
_CACHE_DIMS = ("num_heads", "num_kv_heads", "head_dim", "max_positions", "cache_dtype")
_CACHE_TYPES = ("f16", "f32", "int8", "bf16")
_PATHS = ("/etc/passwd", "../pair/target.bin", "tokenizer.json", "manifest.json", "target.bin", "head.bin", "/dev/zero")
_ATTRIBUTES = (
    *("format", "num_rows", "num_columns", "in_features", "out_features", "activation", "norm_epsilon", "scale"),
    *("norm", "axis", "part", "num_parts", "row_inputs"),
    *("num_heads", "num_kv_heads", "head_dim", "rotary_dim", "interleaved", "sliding_window", "softcap"),
)
_OPERATORS = (
    *(("pilotfish", name) for name in ("Embedding", "Linear", "PagedAttention", "GatherRows", "NormActivation")),
    *(("pilotfish", name) for name in ("Join", "RowsPart", "RowSteps")),
    *(("", name) for name in ("Add", "Mul", "Sigmoid", "Gelu", "Concat", "Split", "Gather", "Softmax", "MatMul")),
    *(("", name) for name in ("Shape", "Expand", "Tile", "Range", "ConstantOfShape", "NonZero", "Transpose", "Cast")),
    *(
        ("com.microsoft", "FusedGemm"),
        ("com.microsoft", "SkipLayerNormalization"),
        ("ai.onnx.ml", "TreeEnsembleRegressor"),
    ),
)


def propose(seed: Seed, chooser: random.Random) -> list[Edit]:
    """One to three changes of the kinds below."""
    edits: list[Edit] = []
    for _ in range(chooser.choice((1, 1, 2, MOST_CHANGES))):
        is_of_session = "session" in seed.files and chooser.random() < _OF_SESSIONS
        edits += (_session if is_of_session else chooser.choice(_CHANGES))(seed, chooser)
    return edits


def _number(chooser: random.Random, near: Any = 0) -> int:
    """A small number, one near a known one, or one at an edge of its type."""
    near = near if isinstance(near, int) else 0
    around = (near + 1, near - 1, near * 2, near // 2, near * 3, near + 64)
    return chooser.choice(
        (chooser.choice(_SIZES), chooser.choice(around), chooser.choice(around), chooser.choice(_HUGE))
    )


def _models(seed: Seed) -> list[list[Any]]:
    """Paths of the parts that have tensors."""
    found: list[list[Any]] = [["models", name] for name in seed.manifest["models"]]
    return [*found, ["head"]] if seed.manifest.get("head") else found


def _at(seed: Seed, path: list[Any]) -> Any:
    part = seed.manifest
    for key in path:
        part = part[key]
    return part


def _ids(chooser: random.Random, count: int, most: int) -> list[int]:
    """An ascending list, as checks want it: dense or spread over everything below a limit."""
    step = max(min(most, 2**31 - 1) // max(count, 1), 1)
    first = chooser.choice((0, 0, 1, step - 1))
    return [first + index * chooser.choice((step,)) for index in range(min(count, 4096))]


def _vocabulary(seed: Seed, chooser: random.Random) -> list[Edit]:
    """The tokenizer's size, the models' vocabularies, and the ids that a draft or head scores."""
    known = seed.manifest["tokenizer"]["size"]
    size = max(_number(chooser, known), 1)
    edits: list[Edit] = [["set", ["tokenizer", "size"], size]]
    if chooser.random() < 0.5:
        most = max(size, known)
        edits += [
            ["set", [*path, "logit_ids"], _ids(chooser, _at(seed, path)["num_logits"], most)]
            for path in _models(seed)[1:]
        ]
    if chooser.random() < 0.5:
        for path in _models(seed):
            count = chooser.choice((size, known, _number(chooser, known)))
            edits += [["set", [*path, "vocab_size"], size], ["set", [*path, "num_logits"], count]]
    if chooser.random() < 0.3:
        edits.append(["set", ["tokenizer", "eos_ids"], _ids(chooser, chooser.choice((0, 1, 3)), size)])
    return edits


def _logit_ids(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Fewer or more logits with as many ids, descending, repeated or beyond the vocabulary ones too."""
    path = chooser.choice(_models(seed))
    count = chooser.choice((_at(seed, path)["num_logits"], min(abs(_number(chooser, 52)), 5000)))
    ids = _ids(chooser, count, chooser.choice((258, 2**31 - 1, 260 * 60000)))
    if chooser.random() < 0.2:
        chooser.shuffle(ids)
    return [["set", [*path, "num_logits"], count], ["set", [*path, "logit_ids"], ids]]


def _tensors(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Where tensors lie, how long they are, what shape they have, and the size of their file with them."""
    path = chooser.choice(_models(seed))
    tensors, weights = _at(seed, path)["tensors"], _at(seed, path)["weights"]
    edits: list[Edit] = []
    for _ in range(chooser.choice((1, 2))):
        index = chooser.randrange(max(len(tensors), 1))
        tensor = tensors[index] if tensors else {"offset": 0, "bytes": 0}
        here = [*path, "tensors", index]
        change = chooser.randrange(5)
        if change == 0:
            end = weights["bytes"] - tensor["bytes"]
            offset = chooser.choice((0, end, end + 4096, weights["bytes"], _number(chooser, tensor["offset"])))
            edits.append(["set", [*here, "offset"], offset // 4096 * 4096])
        elif change == 1:
            size = abs(_number(chooser, tensor["bytes"]))
            edits += [["set", [*here, "bytes"], size], ["set", [*here, "shape"], [size]]]
        elif change == 2:
            rows = chooser.choice((2**32, 2**31, 2**62, 4, 0, -1))
            edits += [["set", [*here, "shape"], [rows, chooser.choice((2**32, 2**2, 0, tensor["bytes"]))]]]
        elif change == 3:
            edits += [["set", [*here, "dtype"], chooser.choice(("u8", "f32"))]]
        else:
            edits += [["set", [*here, "name"], chooser.choice(tensors)["name"] if tensors else "x"]]
    if chooser.random() < 0.4:
        edits.append(["resize", weights["file"], chooser.choice((0.0, 0.5, 0.99, 1.01, 2.0))])
    return edits


def _dims(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Shapes of models and caches."""
    path = chooser.choice(_models(seed))
    where, names = ([*path, "cache"], _CACHE_DIMS) if path == ["head"] and _at(seed, path)["cache"] else (path, _DIMS)
    part = _at(seed, where)
    edits: list[Edit] = []
    for name in chooser.sample(names, chooser.choice((1, 2, 3))):
        is_type = name == "cache_dtype"
        edits.append(
            ["set", [*where, name], chooser.choice(_CACHE_TYPES) if is_type else _number(chooser, part.get(name))]
        )
    if chooser.random() < 0.3:  # all models alike
        edits += [["set", [*other, edits[0][1][-1]], edits[0][2]] for other in _models(seed)]
    return edits


def _head(seed: Seed, chooser: random.Random) -> list[Edit]:
    """What a head says about itself."""
    head = seed.manifest.get("head")
    if not head:
        return _dims(seed, chooser)
    name = chooser.choice(("num_predictions", "state_size", "num_logits", "kind", "taps", "shared"))
    if name == "kind":
        return [["set", ["head", "kind"], chooser.choice(("medusa", "mlp_speculator", "eagle", "eagle3", "mtp"))]]
    if name == "taps":
        taps = [chooser.randrange(4) for _ in range(chooser.choice((1, 2, 3, 70)))]
        return [["set", ["head", "taps"], taps], ["set", ["models", "target", "taps"], taps]]
    if name == "shared":
        tensors = [tensor["name"] for tensor in seed.manifest["models"]["target"]["tensors"]]
        shared = {**head.get("shared", {}), chooser.choice(tensors): chooser.choice(tensors)}
        return [["set", ["head", "shared", key], chooser.choice(tensors)] for key in shared]
    return [["set", ["head", name], _number(chooser, head[name])]]


def _operator(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Another operator, or other attributes of the same."""
    name, node = _node(seed, chooser)
    if chooser.random() < 0.3:
        return [["operator", name, node, *chooser.choice(_OPERATORS)]]
    graph = seed.graphs[name].graph
    known = [each.name for each in graph.node[node].attribute] or list(_ATTRIBUTES)
    edits: list[Edit] = []
    for _ in range(chooser.choice((1, 1, 2))):
        attribute = chooser.choice((chooser.choice(known), chooser.choice(known), chooser.choice(_ATTRIBUTES)))
        old = next((each.i for each in graph.node[node].attribute if each.name == attribute), 64)
        number = max(min(_number(chooser, old), 2**63 - 1), -(2**63))
        texts = ("int4", "int4_asym", "int8", "f16", "f32", "none", "swiglu", "")
        value = chooser.choice((number, number, number, float(number), None, chooser.choice(texts)))
        edits.append(["attribute", name, node, attribute, value])
    return edits


def _steps(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Other integers in a list of a node: in the steps of a RowSteps, its widths and outputs."""
    listed = [
        (name, index, attribute)
        for name, model in sorted(seed.graphs.items())
        for index, node in enumerate(model.graph.node)
        for attribute in node.attribute
        if attribute.ints
    ]
    if not listed:
        return _operator(seed, chooser)
    name, index, attribute = chooser.choice(listed)
    numbers = list(attribute.ints)
    for _ in range(chooser.choice((1, 1, 2, 4))):
        place = chooser.randrange(len(numbers))
        numbers[place] = max(min(_number(chooser, numbers[place]), 2**63 - 1), -(2**63))
    if chooser.random() < 0.1:
        numbers = numbers[: chooser.randrange(len(numbers))] + numbers
    return [["attribute", name, index, attribute.name, numbers]]


def _node(seed: Seed, chooser: random.Random) -> tuple[str, int]:
    name = chooser.choice(sorted(seed.graphs))
    return name, chooser.randrange(len(seed.graphs[name].graph.node))


def _wires(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Nodes read other tensors, or are gone; graphs declare other shapes of their ports."""
    name, node = _node(seed, chooser)
    change = chooser.randrange(4)
    if change == 0:
        return [["drop", name, node]]
    if change == 1:
        shape = [chooser.choice(("num_tokens", _number(chooser, 64))) for _ in range(chooser.choice((0, 1, 2, 4)))]
        return [["port", name, chooser.choice(("input", "output")), chooser.randrange(20), shape]]
    tensor = chooser.choice(("", chooser.randrange(1000), chooser.randrange(1000)))
    return [["rewire", name, node, chooser.randrange(12), tensor]]


def _initializer(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Names, shapes and places of weights in a graph: places outside the bundle among them."""
    name, _ = _node(seed, chooser)
    index = chooser.randrange(100)
    place = {
        "location": chooser.choice(_PATHS),
        "offset": str(_number(chooser, 4096)),
        "length": str(_number(chooser, 64)),
    }
    external = chooser.choice((None, place, place, {"location": chooser.choice(_PATHS)}))
    new_name = chooser.choice((None, "unlisted"))
    shape = chooser.choice((None, None, [_number(chooser, 64)], [2**32, 2**32]))
    edits: list[Edit] = [["initializer", name, index, new_name, shape, external]]
    if shape is not None and chooser.random() < 0.5:
        path = chooser.choice(_models(seed))
        edits.append(["set", [*path, "tensors", index, "shape"], shape])
    return edits


def _insertion(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Operators of ONNX's own between two nodes, with constants that make them large."""
    name, node = _node(seed, chooser)
    if chooser.random() < 0.2:
        return [["loop", name, node, chooser.choice((0, 3, 2**40, 2**62))]]
    size = chooser.choice((1, 2**10, 2**28, 2**30, 2**40, -1))
    made: tuple[str, bool, Any] = chooser.choice(
        (
            ("ConstantOfShape", False, [size]),
            ("Expand", True, [size, 64]),
            ("Tile", True, [size, 1]),
            ("Reshape", True, [size, -1]),
            ("Gather", True, [size]),
            ("Pow", True, 1e30),
        )
    )
    return [["insert", name, node, *made]]


def _bytes(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Bytes of any file: weights, graphs, the tokenizer."""
    name = chooser.choice(seed.data_files)
    count = chooser.choice((1, 4, 64))
    size = len(seed.files[name])
    return [["bytes", name, {str(chooser.randrange(size)): chooser.randrange(256) for _ in range(count)}]]


def _files(seed: Seed, chooser: random.Random) -> list[Edit]:
    """Files that are others, elsewhere, of another size, or no files."""
    path = chooser.choice(_models(seed))
    name = _at(seed, path)["weights"]["file"]
    change = chooser.randrange(4)
    if change == 0:
        return [["resize", chooser.choice(seed.data_files), chooser.choice((0.0, 0.5, 0.999, 1.001, 3.0))]]
    if change == 1:
        return [["link", chooser.choice(seed.data_files), chooser.choice(_PATHS)]]
    file = chooser.choice((*_PATHS, "", ".", "..", "x" * 5000, "a\x00b"))
    if change == 2:
        data = seed.files.get(file, b"")
        entry = {"file": file, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return [["set", [*path, chooser.choice(("weights", "graph"))], entry]]
    return [["set", [*path, "weights", "bytes"], _number(chooser, len(seed.files[name]))]]


def _anything(seed: Seed, chooser: random.Random) -> list[Edit]:
    """A value anywhere in the manifest."""
    path: list[Any] = []
    part = seed.manifest
    while isinstance(part, (dict, list)) and part:
        key = chooser.choice(sorted(part)) if isinstance(part, dict) else chooser.randrange(len(part))
        path.append(key)
        part = part[key]
    if chooser.random() < 0.2:
        return [["remove", path]]
    value = chooser.choice((_number(chooser, part), None, "", [], {}, [[]], 1.5, -0.0, True, "\ud7ff", [2**62] * 3))
    return [["set", path, value]]


def _session(seed: Seed, chooser: random.Random) -> list[Edit]:
    """The saved session: what it says of itself, with hashes that are right, or its bytes, with hashes that are not."""
    if chooser.random() < 0.2:
        size = len(seed.files["session"])
        changes = {str(chooser.randrange(size)): chooser.randrange(256) for _ in range(chooser.choice((1, 8)))}
        resize = ["resize", "session", chooser.choice((0.0, 0.1, 0.9, 1.1, 3.0))]
        return [chooser.choice((resize, ["bytes", "session", changes]))]
    edits: list[Edit] = []
    for _ in range(chooser.choice((1, 1, 2, 3))):
        part = chooser.choice(("count", "count", "tokens", "tokens", "caches", "layout", "note", "bundle"))
        if part == "count":
            value: Any = [chooser.randrange(3), chooser.choice((0, 1, 31, 32, 63, 64, 65, 70, 96, *_HUGE))]
        elif chooser.random() < 0.5:
            value = chooser.choice((0, 1, 4, 4 * 64, 4 * 65, 4 * 400, 2**16))
        else:
            value = {str(chooser.randrange(2**16)): chooser.choice((0, 127, 128, 255)) for _ in range(4)}
        edits.append(["session", part, value])
    return edits


def _tokenizer(_seed: Seed, chooser: random.Random) -> list[Edit]:
    """The tokenizer's file and what the manifest says about it."""
    old, new = chooser.choice((("</s>", "<s>"), ('"id":256', '"id":2147483647'), ("{", "["), ("BPE", "Unigram")))
    edits: list[Edit] = [["text", "tokenizer.json", old, new]]
    if chooser.random() < 0.5:
        edits.append(["set", ["tokenizer", chooser.choice(("bos_id", "pad_id", "size"))], _number(chooser, 258)])
    return edits


_CHANGES: tuple[Callable[[Seed, random.Random], list[Edit]], ...] = (
    *(_vocabulary, _vocabulary, _logit_ids, _tensors, _tensors, _dims, _dims, _head, _operator, _operator, _operator),
    *(_steps, _wires, _initializer, _initializer, _insertion, _bytes, _files, _anything, _anything, _tokenizer),
)
