"""Options that together turn on every processor and warper."""

from __future__ import annotations

from typing import Any

EVERY_OPTION: dict[str, Any] = {
    "top_k": 60,
    "top_p": 0.97,
    "min_p": 0.01,
    "typical_p": 0.97,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
    "penalty_window": 20,
    "no_repeat_ngram_size": 3,
    "min_new_tokens": 6,
    "logit_bias": {9: 1.5, 10: float("-inf")},
}
