"""What a draft's formats and vocabulary promise: tokens a second relative to plain decoding.

A pass takes as long as its matrices take to read. No time is measured, so that a bundle does not depend on the machine
that writes it; how often the draft is right comes from `draft_trials`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.runtime.draft_evaluation import CHAINS, replay
from pilotfish.runtime.manifest import DraftTrial

from .packing import packed_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from .model_export import ExportedModel
    from .options import FormatChoice

    Agreement = Sequence[NDArray[np.bool_]]  # for each answer, which of its tokens the draft guesses: [num_tokens]

_NODE_BYTES = 1 << 16  # a node takes as long as reading these, beside its matrix
_FEWEST_IDS = 8192


def pass_bytes(model: ExportedModel, formats: FormatChoice, num_logits: int | None) -> float:
    """Bytes that a pass reads of matrices in `formats`, or in those that they have, with so many scored ids, or all."""
    readers = [node for node in model.graph if node.op_type == "Linear"]
    total = float(_NODE_BYTES * len(model.graph))
    for node in readers:
        weight = model.plan.weights[str(node.inputs[1].name)]  # type: ignore[union-attr]
        rows = num_logits if num_logits is not None and node is readers[-1] else weight.out_features
        stored = getattr(formats, weight.part) or weight.format
        total += packed_bytes(rows, weight.in_features, stored)
    return total


def verify_cost(num_rows: int) -> float:
    """Time of a target's pass over so many tokens, of one over a token; two cores take 1.07 for 4 and 1.51 for 8."""
    return 1 + (num_rows - 1) ** 2 / 100


def trial(formats: tuple[str, str, str], num_logits: int, step_cost: float, agrees: Agreement) -> DraftTrial:
    """What a draft promises that guesses these tokens of the answers, drafting chains of the best length.

    formats: of linear layers, embedding and output layer. step_cost: of a draft's pass, of one of the target.
    """
    scores = []
    for chain in CHAINS:
        rounds = replay(agrees, chain)
        length = rounds.num_tokens / max(1, rounds.num_rounds)
        scores.append((length / (chain * step_cost + verify_cost(chain + 1)), chain, length))
    speed, chain, length = max(scores)
    guessed = sum(int(answer[1:].sum()) for answer in agrees)  # the first token of an answer comes without drafts
    agreement = guessed / max(1, sum(len(answer) - 1 for answer in agrees))
    linear, embedding, lm_head = formats
    return DraftTrial(linear, embedding, lm_head, num_logits, step_cost, agreement, chain, length, speed)


def vocabulary_sizes(limit: int) -> tuple[int, ...]:
    """How many ids an output layer may score that has `limit` ids: powers of two below it."""
    sizes: list[int] = []
    while (size := _FEWEST_IDS << len(sizes)) < limit:
        sizes.append(size)
    return tuple(sizes)
