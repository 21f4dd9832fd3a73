"""The scales of int4 blocks: those of a plain search, on every instruction set of this machine."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from pilotfish.bindings import InvalidArgumentError
from pilotfish.bindings.calls import best_cpu_kernels, fit_int4_scales

CANDIDATES = np.linspace(0.72, 1.08, 13, dtype=np.float32) / np.float32(-8)
SET_ALONE = """
import sys
import numpy as np
from pilotfish.bindings.calls import cpu_kernels, fit_int4_scales
blocks, candidates = (np.frombuffer(sys.stdin.buffer.read(4 * size), np.float32) for size in (37 * 32, 13))
assert cpu_kernels() == sys.argv[1]
sys.stdout.buffer.write(fit_int4_scales(blocks.reshape(37, 32), candidates).tobytes())
"""


def some_blocks() -> np.ndarray:
    """[37, 32]: more than two runs of sixteen, among them zeros, one number, integers and values near both limits."""
    blocks = np.random.default_rng(3).standard_normal((37, 32)).astype(np.float32)
    blocks[5] = 0
    blocks[6, 1:] = 0
    blocks[7] = np.arange(-16, 16)
    blocks[8] *= np.float32(1e-20)
    blocks[9] *= np.float32(1e15)
    blocks[10, 4], blocks[10, 9] = 9, -9  # the first of two that are as far from 0 counts
    return blocks


def plain_search(block: np.ndarray) -> np.float32:
    """Of one block; four sums, each of every fourth column, in the promised order: 12 to 0, then 28 to 16."""
    extreme, found, most = block[np.abs(block).argmax()], np.float32(0), np.float32(-1)
    for candidate in CANDIDATES:
        scale = extreme * candidate
        inverse = np.float32(0) if scale == 0 else np.float32(1) / scale
        codes = np.clip(np.rint(block * inverse), -8, 7)
        sums = np.zeros(4, np.float32)
        for four in (3, 2, 1, 0, 7, 6, 5, 4):
            sums += (block * codes)[4 * four : 4 * four + 4]
        overlap, norm = (sums[0] + sums[1]) + (sums[2] + sums[3]), np.square(codes).sum()
        fitted = overlap / norm if norm > 0 else np.float32(0)
        if overlap * fitted > most:
            found, most = fitted, overlap * fitted
    return found


def test_scales_are_those_of_a_plain_search() -> None:
    blocks = some_blocks()
    np.testing.assert_array_equal(fit_int4_scales(blocks, CANDIDATES), [plain_search(block) for block in blocks])


@pytest.mark.parametrize("kernels", ["portable", best_cpu_kernels()])
def test_every_instruction_set_has_the_same_bits(kernels: str) -> None:
    blocks = some_blocks()
    child = subprocess.run(
        [sys.executable, "-c", SET_ALONE, kernels],
        input=blocks.tobytes() + CANDIDATES.tobytes(),
        env={**os.environ, "PILOTFISH_CPU": kernels},
        stdout=subprocess.PIPE,
        check=True,
    )
    expected = np.array([plain_search(block) for block in blocks])
    np.testing.assert_array_equal(np.frombuffer(child.stdout, np.float32), expected)


def test_blocks_have_32_weights() -> None:
    with pytest.raises(InvalidArgumentError, match=r"\(4, 31\)"):
        fit_int4_scales(np.zeros((4, 31), np.float32), CANDIDATES)
