"""Prints a digest of each of many operator outputs, one line a case; PILOTFISH_CPU selects the instruction set.

usage: python op_digests.py LIBRARY
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reference.attention_cases import Sequence, as_inputs, make_pass, runner
from reference.linear import FORMATS, Weight
from reference.paged_attention import Attention
from reference.row_steps import random_program
from reference.run_op import OpRunner, run_op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


def linear_cases(library: str) -> Iterator[tuple[str, NDArray[np.generic]]]:
    rng = np.random.default_rng(11)
    for fmt in FORMATS:
        for columns, activation in ((100, "none"), (576, "swiglu"), (64, "none")):
            weight = Weight(rng.standard_normal((96, columns)).astype(np.float32), fmt)
            for rows in (1, 2, 5, 21):
                inputs = {
                    "x": (rng.standard_normal((rows, columns)) * 10.0 ** rng.integers(-3, 3, (rows, 1))).astype(
                        np.float32
                    ),
                    "weight": weight.packed(),
                    "bias": rng.standard_normal(96).astype(np.float32),
                    "norm_weight": rng.uniform(0.5, 1.5, columns).astype(np.float32) if rows != 2 else None,
                    "residual": None,
                }
                attributes = {
                    "format": fmt,
                    "in_features": columns,
                    "out_features": 96,
                    "activation": activation,
                    "norm_epsilon": 1e-5,
                }
                yield f"linear {fmt} {columns} {activation} {rows}", run_op(library, "Linear", inputs, attributes)


def attention_cases(library: str) -> Iterator[tuple[str, NDArray[np.generic]]]:
    tree = (-1, 0, 0, 1, 1, 2, 3)
    sequences = [Sequence(530, 7, tree), Sequence(0, 7), Sequence(20, 1)]
    for dim, window, softcap in ((64, 0, 0.0), (80, 9, 0.0), (20, 0, 2.0), (128, 0, 0.0)):
        attention = Attention(6, 3, dim, dim // 4 * 2, interleaved=dim % 3 % 2, sliding_window=window, softcap=softcap)
        for dtype in (np.float16, np.float32, np.uint8):
            inputs = make_pass(attention, sequences, dtype=dtype, norm=dim != 128)
            inputs.qkv[:, ::7] *= 1e-6  # halves below the normal range too
            out = runner(library, attention, inputs)(as_inputs(inputs))
            name = f"attention {dim} {window} {softcap} {dtype.__name__}"
            yield name, out
            yield name + " keys", inputs.key_cache
            yield name + " values", inputs.value_cache


def row_step_cases(library: str) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for seed in range(20):
        attributes, values = random_program(seed)
        inputs = {f"x{index}": value for index, value in enumerate(values)}
        runner = OpRunner(library, "RowSteps", inputs, attributes, num_outputs=len(attributes["outputs"]))
        for output, value in enumerate(runner.all(inputs)):
            yield f"row steps {seed} {output}", value


def main() -> None:
    library = sys.argv[1]
    for cases in (linear_cases, attention_cases, row_step_cases):
        for name, values in cases(library):
            print(name, hashlib.sha256(values.tobytes()).hexdigest())  # noqa: T201 -- its only output


if __name__ == "__main__":
    main()
