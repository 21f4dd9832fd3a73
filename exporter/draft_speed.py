"""What formats and vocabulary of a draft or head promise: tokens a second relative to plain decoding.

A pass takes as long as its matrices take to read. No time is measured, so that a bundle does not depend on the machine
that writes it; how often the draft is right comes from `draft_trials`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.runtime.draft_evaluation import replay
from pilotfish.runtime.manifest import DraftTrial

from .options import FormatChoice
from .packing import packed_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import onnx_ir as ir
    from numpy.typing import NDArray

    from .model_export import ExportedModel
    from .passes import PackedWeight

    Agreement = Sequence[NDArray[np.bool_]]  # for each answer, which of its tokens are guessed: [num_tokens]
    Agreements = Mapping[int, Agreement]  # by the number of tokens that a round drafts

_NODE_BYTES = 1 << 16  # a node takes as long as reading these, beside its matrix
_FEWEST_IDS = 8192


def pass_bytes(
    graph: ir.Graph, weights: Mapping[str, PackedWeight], formats: FormatChoice, num_logits: int | None
) -> float:
    """Bytes that a pass reads of matrices in `formats`, or in those that they have, with so many scored ids, or all."""
    total = float(_NODE_BYTES * len(graph))
    for node in graph:
        if node.op_type != "Linear":
            continue
        weight = weights[str(node.inputs[1].name)]  # type: ignore[union-attr]
        is_output = weight.part != "linear"  # the output layer's may be the embedding's
        rows = num_logits if num_logits is not None and is_output else weight.out_features
        stored = getattr(formats, weight.part) or weight.format
        total += packed_bytes(rows, weight.in_features, stored)
    return total


def target_bytes(target: ExportedModel) -> float:
    """Bytes that a pass of the target reads."""
    return pass_bytes(target.graph, target.plan.weights, FormatChoice(), None)


def verify_cost(num_rows: int) -> float:
    """Time of a target's pass over so many tokens, of one over a token; two cores take 1.07 for 4 and 1.51 for 8."""
    return 1 + (num_rows - 1) ** 2 / 100


def trial(
    formats: tuple[str, str, str], num_logits: int, cost: Callable[[int], float], guesses: Agreements
) -> DraftTrial:
    """What a draft or head promises, drafting chains of the best length.

    formats: of linear layers, embedding and output layer. cost: of drafting a chain, of a pass of the target. guesses:
    by the length of a chain, which tokens of the answers are guessed.
    """
    scores = []
    for chain, agrees in guesses.items():
        rounds = replay(agrees, chain)
        length = rounds.num_tokens / max(1, rounds.num_rounds)
        scores.append((length / (cost(chain) + verify_cost(chain + 1)), chain, length))
    speed, chain, length = max(scores)
    agrees = guesses[chain]
    guessed = sum(int(answer[1:].sum()) for answer in agrees)  # the first token of an answer comes without drafts
    agreement = guessed / max(1, sum(len(answer) - 1 for answer in agrees))
    linear, embedding, lm_head = formats
    step_cost = cost(chain) / chain
    return DraftTrial(linear, embedding, lm_head, num_logits, step_cost, agreement, chain, length, speed)


def vocabulary_sizes(limit: int) -> tuple[int, ...]:
    """How many ids an output layer may score that has `limit` ids: powers of two below it."""
    sizes: list[int] = []
    while (size := _FEWEST_IDS << len(sizes)) < limit:
        sizes.append(size)
    return tuple(sizes)
