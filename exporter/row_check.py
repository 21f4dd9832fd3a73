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

NUM_ROWS = 64
PASS_ROWS = (1, 2, 3, 8, 17)
_PASSES = 4  # of each size: enough for rows at the start, in the middle and at the end of a pass


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
        for start in range(0, min(count - size + 1, _PASSES * size), size):
            found = run.logits(ids, (start, start + size))
            if not np.array_equal(found.view(np.int32), together[start : start + size].view(np.int32)):
                raise ParityError(
                    f"{path.stem}: a row has other bits in a pass of {size} rows than in one of {count}; ONNX Runtime "
                    f"runs {', '.join(operators)} for this model, and one of them does not act on each row by itself"
                )
