"""Runs an exported head's graphs on the streams of the tiny target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
from head_target import IDS, HeadTarget

from pilotfish.bindings import library_path

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from pilotfish.exporter.manifest import HeadEntry

TOLERANCE = 1e-4
BLOCK_SIZE = 16


def run(folder: Path, role: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.register_custom_ops_library(str(library_path()))
    path = str(folder / f"head.{role}.onnx")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays = {name: np.ascontiguousarray(value) for name, value in inputs.items()}
    assert sorted(arrays) == sorted(port.name for port in session.get_inputs())
    binding = session.io_binding()
    for name, value in arrays.items():
        binding.bind_input(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
    names = [port.name for port in session.get_outputs()]
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))


def tap(target: HeadTarget, head: HeadEntry) -> dict[str, np.ndarray]:
    return {f"aux_hidden.{index}": target.streams[index].numpy() for index in head.taps}


def assert_close(found: np.ndarray, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(found, expected.numpy(), atol=TOLERANCE, rtol=TOLERANCE)


def step_inputs(features: np.ndarray, caches: dict[str, np.ndarray], start: int, end: int) -> dict[str, Any]:
    rows = end - start
    return {
        "input_ids": np.array([*IDS[1:], 42][start:end], dtype=np.int32),
        "position_ids": np.arange(start, end, dtype=np.int32),
        "seq_starts": np.array([0, rows], dtype=np.int32),
        "context_lens": np.array([start], dtype=np.int32),
        "block_table": np.zeros((1, 1), dtype=np.int32),
        "tree_mask": np.zeros(0, dtype=np.uint64),
        "output_rows": np.arange(rows, dtype=np.int32),
        "features": features,
        **caches,
    }


def run_steps(out: Path, head: HeadEntry, features: np.ndarray) -> dict[str, np.ndarray]:
    """Two passes, so that the cache is read back."""
    cache = head.cache
    shape = (1, BLOCK_SIZE, cache.num_kv_heads, cache.head_dim)
    caches = {name: np.zeros(shape, dtype=np.float32) for name in ("key_cache.0", "value_cache.0")}
    passes = [
        run(out, "step", step_inputs(features[start:end], caches, start, end)) for start, end in ((0, 7), (7, len(IDS)))
    ]
    return {name: np.concatenate([found[name] for found in passes]) for name in passes[0]}
