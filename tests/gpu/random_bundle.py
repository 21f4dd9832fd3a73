"""Writes a bundle of known shapes with random weights: python tests/gpu/random_bundle.py SHAPE FOLDER [--std 0.7].

It needs numpy and onnx alone, so that a machine with a GPU can make what is too large to carry there. A pair speculates
with a known acceptance: next = pi(current) for the draft always, for the target as often as its embedding (of standard
deviation --std) outweighs its random layers. Real compute, made-up text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

GROUP_BYTES = {"int4": 576, "int4_asym": 640, "int8": 1088, "f16": 2048}
SPREAD = {"int4": 4.32, "int4_asym": 4.61, "int8": 73.3}  # standard deviation of the random integers
CACHES = {  # element type, bytes of a head's scale
    "f16": (TensorProto.FLOAT16, 0),
    "int8": (TensorProto.UINT8, 2),
}
POSITIONS = 4096
ALIGNMENT = 4096
EPSILON = 1e-5
TARGET_SEED = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    linear: str = "int4"
    ends: str = "int8"  # of the embedding and the output head
    layer_scale: float = 1.0  # standard deviation that a layer adds
    cache: str = "f16"

    @property
    def head_dim(self) -> int:
        """Columns of a head."""
        return self.hidden // self.heads

    @property
    def num_parameters(self) -> int:
        """Of its matrices, embedding and output head among them."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        return self.hidden * (self.layers * (attention + 3 * self.feed_forward) + 2 * self.vocabulary)


PAIRS = {
    "tiny": (Shape(256, 2, 4, 2, 512, 512), Shape(128, 1, 2, 1, 256, 512)),
    "asym": (Shape(576, 4, 9, 3, 1536, 2048, "int4_asym"), Shape(256, 2, 4, 2, 768, 2048, "int8")),
    "f16": (Shape(576, 4, 9, 3, 1536, 2048, "f16", "f16"), Shape(256, 2, 4, 2, 768, 2048, "f16", "f16")),
    "1b_f16": (Shape(2048, 22, 32, 4, 5632, 32000, "f16", "f16"), Shape(768, 4, 12, 12, 2048, 32000)),
    "1b": (Shape(2048, 22, 32, 4, 5632, 32000), Shape(768, 4, 12, 12, 2048, 32000)),
    "7b": (Shape(4096, 32, 32, 32, 11008, 32000), Shape(1536, 22, 12, 12, 4096, 32000)),
}


class Weights:
    """Tensors of one model on their way into its file."""

    def __init__(self) -> None:
        self.entries: list[dict[str, object]] = []
        self.parts: list[np.ndarray] = []
        self.offset = 0

    def add(self, name: str, array: np.ndarray) -> None:
        """Appends a u8 or f32 tensor."""
        dtype = "u8" if array.dtype == np.uint8 else "f32"
        self.entries.append(
            {"name": name, "dtype": dtype, "shape": list(array.shape), "offset": self.offset, "bytes": array.nbytes}
        )
        self.parts.append(array)
        self.offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT

    def write(self, path: Path) -> dict[str, object]:
        """Writes the file and returns its manifest entry."""
        digest = hashlib.sha256()
        with path.open("wb") as file:
            for array in self.parts:
                data = array.tobytes() + bytes(-array.nbytes % ALIGNMENT)
                digest.update(data)
                file.write(data)
        return {"file": path.name, "bytes": self.offset, "sha256": digest.hexdigest()}


def random_packed(seed: int, rows: int, columns: int, kind: str, std: float) -> np.ndarray:
    """A packed weight of independent entries with the given standard deviation."""
    groups = -(-rows // 16) * -(-columns // 64)
    size = GROUP_BYTES[kind]
    planes = 128 if kind == "int4_asym" else 64
    rng = np.random.Generator(np.random.SFC64(seed))
    if kind == "f16":
        values = rng.standard_normal(groups * size // 2, dtype=np.float32) * np.float32(std)
        return values.astype(np.float16).view(np.uint8)
    packed = np.frombuffer(bytearray(rng.bytes(groups * size)), np.uint8).reshape(groups, size)
    if kind == "int8":
        packed[packed == 0] = 1
    elif kind == "int4":  # no -8: the mean is zero
        table = np.array([[(b >> 4 or 8) << 4 | (b & 15 or 8) for b in range(256)]], np.uint8)[0]
        packed[:] = table[packed]
    scales = packed[:, size - planes :].view(np.float16)
    scales[:] = std / SPREAD[kind]
    if kind == "int4_asym":
        scales[:, 32:] = -7.5 * std / SPREAD[kind]
    return packed.reshape(-1)


def pack_rows(rows: np.ndarray, kind: str) -> np.ndarray:
    """Packs f32 rows (a multiple of 16 rows, of 64 columns) as int8 with a scale a block, or as f16."""
    count, columns = rows.shape
    if kind == "f16":
        groups = rows.astype(np.float16).reshape(count // 16, 16, columns // 64, 64).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(groups).view(np.uint8).reshape(-1)
    blocks = rows.reshape(count // 16, 16, columns // 64, 2, 32)
    scale = (np.abs(blocks).max(axis=-1) / 127).astype(np.float16)
    codes = np.clip(np.rint(blocks / np.maximum(scale.astype(np.float32), 1e-20)[..., None]), -127, 127)
    data = (codes + 128).astype(np.uint8).reshape(count // 16, 16, columns // 64, 2, 8, 4)
    data = data.transpose(0, 2, 3, 4, 1, 5).reshape(count // 16, columns // 64, 1024)
    planes = np.ascontiguousarray(scale.transpose(0, 2, 3, 1)).reshape(count // 16, columns // 64, 32)
    return np.ascontiguousarray(np.concatenate([data, planes.view(np.uint8)], axis=2)).reshape(-1)


def write_model(stem: Path, shape: Shape, permutation: np.ndarray, *, std: float, seed: int) -> dict:
    """Writes graph and weights of one model, STEM.onnx and STEM.bin, and returns its manifest entry."""
    folder, name = stem.parent, stem.name
    weights = Weights()
    rng = np.random.Generator(np.random.SFC64(seed))
    embedding = rng.standard_normal((shape.vocabulary, shape.hidden), dtype=np.float32)
    head = np.empty_like(embedding)
    head[permutation] = embedding
    weights.add("embedding", pack_rows(embedding * std, shape.ends))
    add_layers(weights, shape, seed)
    weights.add("lm_head", pack_rows(head / math.sqrt(shape.hidden), shape.ends))
    for layer in range(shape.layers):
        for norm in ("input_norm", "post_norm"):
            weights.add(f"layers.{layer}.{norm}", np.ones(shape.hidden, np.float32))
    weights.add("final_norm", np.ones(shape.hidden, np.float32))
    angle = np.arange(POSITIONS)[:, None] * 10000.0 ** (-np.arange(0, shape.head_dim, 2) / shape.head_dim)
    weights.add("cos", np.cos(angle).astype(np.float32))
    weights.add("sin", np.sin(angle).astype(np.float32))
    write_graph(folder / f"{name}.onnx", f"{name}.bin", shape, weights)
    graph = (folder / f"{name}.onnx").read_bytes()
    return {
        "graph": {"file": f"{name}.onnx", "bytes": len(graph), "sha256": hashlib.sha256(graph).hexdigest()},
        "weights": weights.write(folder / f"{name}.bin"),
        "tensors": weights.entries,
        "architecture": "llama",
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.feed_forward,
        "num_heads": shape.heads,
        "num_kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocabulary,
        "num_logits": shape.vocabulary,
        "max_positions": POSITIONS,
        "sliding_window": 0,
        "cache_dtype": shape.cache,
        "formats": {"linear": shape.linear, "embedding": shape.ends, "lm_head": shape.ends},
        "parameters": shape.num_parameters,
        "source": {"id": "random", "sha256": None, "licence": None},
        "parity": {},
    }


def add_layers(weights: Weights, shape: Shape, seed: int) -> None:
    """Random layers: unit-variance activations inside, layer_scale into the residual stream."""
    hidden, inner = shape.hidden, shape.feed_forward
    gated = 0.6  # standard deviation of silu(gate) * up
    parts = {
        "qkv": ((shape.heads + 2 * shape.kv_heads) * shape.head_dim, hidden, 1 / math.sqrt(hidden)),
        "o": (hidden, shape.heads * shape.head_dim, 0.5 * shape.layer_scale / math.sqrt(hidden)),
        "gate_up": (2 * inner, hidden, 1 / math.sqrt(hidden)),
        "down": (hidden, inner, shape.layer_scale / gated / math.sqrt(inner)),
    }
    names = [(f"layers.{layer}.{part}", *sizes) for layer in range(shape.layers) for part, sizes in parts.items()]
    with ThreadPoolExecutor() as pool:
        made = pool.map(
            lambda item: random_packed(seed * 100000 + item[0], item[1][1], item[1][2], shape.linear, item[1][3]),
            enumerate(names),
        )
        for (name, *_), array in zip(names, made, strict=True):
            weights.add(name, array)


def write_graph(path: Path, data: str, shape: Shape, weights: Weights) -> None:
    """The graph that the exporter writes for a Llama: five nodes a layer."""
    hidden, inner = shape.hidden, shape.feed_forward
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    nodes: list[object] = []

    def node(op: str, inputs: list[str], out: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [out], domain="pilotfish", **attributes))
        return out

    def linear(inputs: list[str], out: str, shape: tuple[int, int, str], activation: str = "none") -> str:
        columns, rows, kind = shape
        return node("Linear", inputs, out, format=kind, in_features=columns, out_features=rows, activation=activation,
                    norm_epsilon=EPSILON)  # fmt: skip

    x = node("Embedding", ["input_ids", "embedding"], "x", format=shape.ends, num_rows=shape.vocabulary,
             num_columns=hidden, scale=1.0)  # fmt: skip
    for i in range(shape.layers):
        at = f"layers.{i}."
        qkv = linear([x, at + "qkv", "", at + "input_norm"], at + "q", (hidden, width, shape.linear))
        places = ["position_ids", "seq_starts", "context_lens", "block_table", "tree_mask", "cos", "sin"]
        attended = node(
            "PagedAttention", [qkv, *places, f"key_cache.{i}", f"value_cache.{i}"], at + "a", num_heads=shape.heads,
            num_kv_heads=shape.kv_heads, head_dim=shape.head_dim, rotary_dim=shape.head_dim, interleaved=0,
            scale=shape.head_dim**-0.5, sliding_window=0, softcap=0.0, norm_epsilon=0.0,
        )  # fmt: skip
        x = linear([attended, at + "o", "", "", x], at + "x", (shape.heads * shape.head_dim, hidden, shape.linear))
        gated = linear([x, at + "gate_up", "", at + "post_norm"], at + "g", (hidden, 2 * inner, shape.linear), "swiglu")
        x = linear([gated, at + "down", "", "", x], at + "y", (inner, hidden, shape.linear))
    node("GatherRows", [x, "output_rows"], "rows")
    linear(["rows", "lm_head", "", "final_norm"], "logits", (hidden, shape.vocabulary, shape.ends))

    ints = {"input_ids": ["t"], "position_ids": ["t"], "seq_starts": ["s1"], "context_lens": ["s"],
            "block_table": ["s", "b"], "output_rows": ["o"]}  # fmt: skip
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, axes) for name, axes in ints.items()]
    inputs.insert(5, helper.make_tensor_value_info("tree_mask", TensorProto.UINT64, ["m"]))
    for i in range(shape.layers):
        for kind in ("key", "value"):
            dtype, scale_bytes = CACHES[shape.cache]
            axes = ["n", "k", shape.kv_heads, shape.head_dim + scale_bytes]
            inputs.append(helper.make_tensor_value_info(f"{kind}_cache.{i}", dtype, axes))
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["o", shape.vocabulary])
    graph = helper.make_graph(nodes, "random", inputs, [output], [initializer(e, data) for e in weights.entries])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("pilotfish", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def initializer(entry: dict, data: str) -> TensorProto:
    """A tensor whose data lie in the weights file."""
    tensor = TensorProto(
        name=entry["name"],
        data_type=TensorProto.UINT8 if entry["dtype"] == "u8" else TensorProto.FLOAT,
        dims=entry["shape"],
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", data), ("offset", entry["offset"]), ("length", entry["bytes"])):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def main() -> None:
    """Writes the pair of a name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=sorted(PAIRS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--std", type=float, default=0.7, help="of the target's embedding: what decides acceptance")
    parser.add_argument("--no-draft", action="store_true")
    parser.add_argument("--cache", choices=CACHES, default="f16")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    target, draft = (replace(shape, cache=args.cache) for shape in PAIRS[args.shape])
    permutation = np.random.Generator(np.random.SFC64(1)).permutation(target.vocabulary)
    models = {"target": write_model(args.folder / "target", target, permutation, std=args.std, seed=TARGET_SEED)}
    if not args.no_draft:
        quiet = replace(draft, layer_scale=0.1)  # its embedding decides
        models["draft"] = write_model(args.folder / "draft", quiet, permutation, std=10.0, seed=3)
    words = {f"w{i}": i for i in range(target.vocabulary)}
    tokenizer = json.dumps(
        {
            "version": "1.0",
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
        }
    )
    (args.folder / "tokenizer.json").write_text(tokenizer)
    manifest = {
        "format": "pilotfish-bundle",
        "format_version": 1,
        "created_by": {"pilotfish": "random"},
        "tokenizer": {
            "file": "tokenizer.json",
            "bytes": len(tokenizer),
            "sha256": hashlib.sha256(tokenizer.encode()).hexdigest(),
            "size": target.vocabulary,
            "bos_id": 0,
            "eos_ids": [1],
            "pad_id": None,
            "add_bos": False,
        },
        "chat_template": None,
        "models": models,
    }
    (args.folder / "manifest.json").write_text(json.dumps(manifest))


if __name__ == "__main__":
    main()
