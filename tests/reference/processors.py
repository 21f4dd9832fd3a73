"""What generate options make of one row of logits, by transformers' own processors and warpers, in double precision.

Presence and frequency penalties, which transformers lacks, follow OpenAI's API: over generated tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers.generation.logits_process import (
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pilotfish.bindings import RequestOptions

    Row = NDArray[np.float64]


def processed_scores(options: RequestOptions, logits: Row, prompt: Sequence[int], output: Sequence[int]) -> Row:
    """The scores that greedy decoding takes the largest of; a mask is not among the options this knows."""
    tokens = [*prompt, *output]
    window = options.penalty_window or len(tokens)
    scores = torch.tensor(logits, dtype=torch.float64)[None]
    if options.logit_bias:
        scores = SequenceBiasLogitsProcessor({(token,): bias for token, bias in options.logit_bias})(None, scores)
    recent = tokens[max(0, len(tokens) - window) :]
    if options.repetition_penalty != 1 and recent:
        scores = RepetitionPenaltyLogitsProcessor(options.repetition_penalty)(torch.tensor([recent]), scores)
    generated = recent[max(0, len(recent) - len(output)) :] if output else []
    counts = np.bincount(generated, minlength=len(logits)) if generated else np.zeros(len(logits))
    penalties = options.frequency_penalty * counts + options.presence_penalty * (counts > 0)
    scores = scores - torch.tensor(penalties)
    ids = torch.tensor([tokens], dtype=torch.int64)
    if options.no_repeat_ngram_size:
        scores = NoRepeatNGramLogitsProcessor(options.no_repeat_ngram_size)(ids, scores)
    if options.min_new_tokens and options.stop_ids:
        ends = list(options.stop_ids)
        scores = MinNewTokensLengthLogitsProcessor(len(prompt), options.min_new_tokens, ends)(ids, scores)
    return scores[0].numpy()


def distribution(options: RequestOptions, scores: Row, slack: float = 0.0) -> Row:
    """Probabilities after the warpers; ``slack`` moves every threshold by so much of its value."""
    rows = _warpers(options, 1 + slack)(torch.empty((1, 0), dtype=torch.int64), torch.tensor(scores)[None])
    return torch.softmax(rows, dim=-1)[0].numpy()


def _warpers(options: RequestOptions, factor: float) -> LogitsProcessorList:
    """In the order of ``_get_logits_processor``."""
    warpers: list[LogitsProcessor] = [TemperatureLogitsWarper(float(options.temperature))]
    if options.top_k > 0:
        warpers.append(TopKLogitsWarper(options.top_k))
    if options.top_p < 1:
        warpers.append(TopPLogitsWarper(min(1.0, options.top_p * factor)))
    if options.min_p > 0:
        warpers.append(MinPLogitsWarper(min(1.0, options.min_p / factor)))
    if options.typical_p < 1:
        warpers.append(TypicalLogitsWarper(min(1 - 1e-12, options.typical_p * factor)))
    return LogitsProcessorList(warpers)
