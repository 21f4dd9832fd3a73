"""Whether a row of an exported graph has the same bits however many rows are in its pass.

Our operators are made so; nodes that ONNX Runtime runs have to show it. Without it, drafts would change the output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .errors import ParityError
from .parity import PagedRun
from .passes.check import operators_of_runtime

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

NUM_ROWS = 256  # an engine's pass of a prompt
PASS_ROWS = (1, 2, 3, 8, 17, 64)
_COMPARED = 64  # rows from the first on, in up to
_PASSES = 4  # passes of each size, besides one that ends with the last row


def check_rows(graph: ir.Graph, path: Path, cache_dtype: str, *, num_ids: int, num_positions: int) -> None:
    """Runs one sequence in passes of several sizes and compares the logits of each row with those of one pass.

    Raises:
        ParityError: a row differs; the message has the size of the pass and the operators that ONNX Runtime runs.
    """
    operators = operators_of_runtime(graph)
    if not operators:
        return
    count = min(NUM_ROWS, num_positions)
    ids = [(7 * index * index + 3 * index + 1) % num_ids for index in range(count)]
    run = PagedRun(path, count, cache_dtype)
    together = run.logits(ids, (0, count))
    for size in PASS_ROWS:
        for start in _starts(size, count):
            found = run.logits(ids, (start, start + size))
            if not np.array_equal(found.view(np.int32), together[start : start + size].view(np.int32)):
                raise ParityError(
                    f"{path.stem}: a row has other bits in a pass of {size} rows than in one of {count}; ONNX Runtime "
                    f"runs {', '.join(operators)} for this model, and one of them does not act on each row by itself"
                )


def _starts(size: int, count: int) -> list[int]:
    """Rows at which the passes of a size begin: for rows at the start, in the middle and at the end of a pass."""
    if size >= count:
        return []
    return [*range(0, min(count - size, _PASSES * size, _COMPARED), size), count - size]
