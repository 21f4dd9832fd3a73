"""Times whole passes of a 1.1B Llama shape (22 layers, hidden 2048, random int4 weights) through pilotfish's operators.

python samples/bench_kernels.py --threads 2 --context 128 --rows 1,2,4,8,16,32,512

Prints one line a row count: median and fastest time, ratio to the first, weight bytes read a second. The counts take
turns, so that a machine's drift meets all of them. Needs onnx beside onnxruntime.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import time
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 2048, 5632, 22, 32, 4, 64, 32000
QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM
BLOCK_SIZE = 16
GROUP_BYTES = {"int4": 576, "int4_asym": 640, "int8": 1088, "f16": 2048, "f32": 4096}
HUGE_PAGE = 2 << 20
MOST_VERIFIED_ROWS = 64


@dataclass(frozen=True, slots=True)
class Linear:
    """One Linear node and the format of its weight."""

    name: str
    inputs: int
    outputs: int
    format: str
    activation: str = "none"

    @property
    def num_bytes(self) -> int:
        """Bytes of the packed weight."""
        return -(-self.outputs // 16) * -(-self.inputs // 64) * GROUP_BYTES[self.format]


def huge_page_bytes(num_bytes: int) -> np.ndarray:
    """Memory in huge pages, where the system grants them, filled with small weights and scales of about 0.01."""
    pages = mmap.mmap(-1, num_bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    first = -memory.ctypes.data % HUGE_PAGE
    aligned = memory[first : first + num_bytes]
    ctypes.memset(aligned.ctypes.data, 0x21, num_bytes)
    return aligned


class Graph:
    """The pass as a model with every weight an input."""

    def __init__(self, fmt: str, head_format: str) -> None:
        self.linears: list[Linear] = []
        self.nodes = []
        hidden = "x"
        for layer in range(LAYERS):
            hidden = self._layer(f"{layer}.", hidden, fmt)
        self._linear(Linear("lm_head", HIDDEN, VOCAB, head_format), hidden, "logits", norm=True)

    def _linear(self, linear: Linear, x: str, y: str, *, norm: bool = False, residual: str = "") -> None:
        self.linears.append(linear)
        names = [x, linear.name, "", "norm" if norm else "", residual]
        attributes = {"format": linear.format, "in_features": linear.inputs, "out_features": linear.outputs}
        node = helper.make_node(
            "Linear",
            names,
            [y],
            name=linear.name,
            domain="pilotfish",
            **attributes,
            activation=linear.activation,
            norm_epsilon=1e-5,
        )
        self.nodes.append(node)

    def _layer(self, at: str, hidden: str, fmt: str) -> str:
        self._linear(Linear(at + "qkv", HIDDEN, QKV, fmt), hidden, at + "qkv.out", norm=True)
        names = [at + "qkv.out", "position_ids", "seq_starts", "context_lens", "block_table", "tree_mask", "cos", "sin"]
        node = helper.make_node(
            "PagedAttention",
            [*names, at + "keys", at + "values"],
            [at + "heads"],
            name=at + "attention",
            domain="pilotfish",
            num_heads=HEADS,
            num_kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            rotary_dim=HEAD_DIM,
            interleaved=0,
            scale=HEAD_DIM**-0.5,
            sliding_window=0,
            softcap=0.0,
            norm_epsilon=1e-5,
        )
        self.nodes.append(node)
        self._linear(Linear(at + "o", HIDDEN, HIDDEN, fmt), at + "heads", at + "mid", residual=hidden)
        self._linear(Linear(at + "gate_up", HIDDEN, 2 * FFN, fmt, "swiglu"), at + "mid", at + "ffn", norm=True)
        self._linear(Linear(at + "down", FFN, HIDDEN, fmt), at + "ffn", at + "out", residual=at + "mid")
        return at + "out"

    def fixed_inputs(self, max_context: int) -> dict[str, np.ndarray]:
        """Weights, tables and caches: everything but the rows of a pass."""
        num_blocks = -(-max_context // BLOCK_SIZE)
        weights = huge_page_bytes(sum(linear.num_bytes for linear in self.linears))
        inputs: dict[str, np.ndarray] = {"norm": np.ones(HIDDEN, np.float32)}
        offset = 0
        for linear in self.linears:
            inputs[linear.name] = weights[offset : offset + linear.num_bytes]
            offset += linear.num_bytes
        angles = np.outer(np.arange(max_context), 10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        inputs["cos"], inputs["sin"] = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        for layer in range(LAYERS):
            for name in ("keys", "values"):
                shape = (num_blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
                inputs[f"{layer}.{name}"] = np.full(shape, 0.1, np.float16)
        inputs["block_table"] = np.arange(num_blocks, dtype=np.int32)[None]
        inputs["tree_mask"] = np.zeros(0, np.uint64)
        return inputs

    def session(self, library: str, inputs: dict[str, np.ndarray], threads: int, profile: str) -> ort.InferenceSession:
        """The graph, loaded; ``profile`` is the prefix of ONNX Runtime's profile, empty for none."""
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
            for name, value in inputs.items()
        ]
        output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, VOCAB])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("pilotfish", 1)]
        model = helper.make_model(
            helper.make_graph(self.nodes, "bench", values, [output]), opset_imports=opsets, ir_version=10
        )
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(library)
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def row_inputs(num_rows: int, context: int) -> dict[str, np.ndarray]:
    """The inputs that depend on the rows of a pass."""
    first = 0 if num_rows > MOST_VERIFIED_ROWS else context  # a prompt chunk starts an empty context
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((num_rows, HIDDEN)).astype(np.float32),
        "position_ids": np.arange(first, first + num_rows, dtype=np.int32),
        "seq_starts": np.array([0, num_rows], np.int32),
        "context_lens": np.array([first], np.int32),
    }


def bind(session: ort.InferenceSession, inputs: dict[str, np.ndarray], logits: np.ndarray) -> ort.IOBinding:
    """Inputs and output bound without a copy."""
    binding = session.io_binding()
    for name, value in inputs.items():
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        binding.bind_input(name, "cpu", 0, kind, value.shape, value.ctypes.data)
    binding.bind_output("logits", "cpu", 0, TensorProto.FLOAT, logits.shape, logits.ctypes.data)
    return binding


def library_path() -> str:
    """PILOTFISH_LIBRARY, or the installed package's library."""
    if "PILOTFISH_LIBRARY" in os.environ:
        return os.environ["PILOTFISH_LIBRARY"]
    from pilotfish.bindings import library_path as installed  # noqa: PLC0415 -- not needed where the variable is set

    return str(installed())


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--rows", default="1,2,4,8,16,32,512")
    parser.add_argument("--repeats", type=int, default=20, help="passes a row count; above 64 rows a fifth of it")
    parser.add_argument("--format", default="int4", choices=GROUP_BYTES)
    parser.add_argument("--head-format", default="int8", choices=GROUP_BYTES)
    parser.add_argument("--profile", default="", help="prefix of ONNX Runtime's profile")
    return parser.parse_args()


def time_in_turn(
    session: ort.InferenceSession, bindings: dict[int, ort.IOBinding], repeats: int
) -> dict[int, list[float]]:
    """Seconds of each pass by its rows; the first two passes warm up."""
    seconds: dict[int, list[float]] = {count: [] for count in bindings}
    for repeat in range(repeats + 2):
        for count, binding in bindings.items():
            if count > MOST_VERIFIED_ROWS and repeat % 5:
                continue
            start = time.perf_counter()
            session.run_with_iobinding(binding)
            if repeat >= 2:  # noqa: PLR2004 -- warm by then
                seconds[count].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    """Time the row counts that the command line asks for."""
    arguments = parse_arguments()
    counts = [int(count) for count in arguments.rows.split(",")]
    graph = Graph(arguments.format, arguments.head_format)
    fixed = graph.fixed_inputs(arguments.context + max(counts))
    rows = {count: row_inputs(count, arguments.context) for count in counts}
    logits = {count: np.zeros((count, VOCAB), np.float32) for count in counts}
    session = graph.session(library_path(), fixed | rows[counts[0]], arguments.threads, arguments.profile)
    bindings = {count: bind(session, fixed | rows[count], logits[count]) for count in counts}
    seconds = time_in_turn(session, bindings, arguments.repeats)

    num_bytes = sum(linear.num_bytes for linear in graph.linears)
    first = float(np.median(seconds[counts[0]]))
    for count in counts:
        median, fastest = float(np.median(seconds[count])), min(seconds[count])
        print(
            f"rows {count:4}: median {median * 1e3:8.2f} ms, fastest {fastest * 1e3:8.2f} ms, "
            f"ratio {median / first:5.2f}, {num_bytes / median / 1e9:5.1f} GB/s, {count / median:7.1f} rows/s"
        )
    numbers = {name: getattr(arguments, name) for name in ("threads", "context", "format")}
    print(json.dumps({"schema": "pilotfish-bench-kernels-1", **numbers, "seconds": seconds}))


if __name__ == "__main__":
    main()
