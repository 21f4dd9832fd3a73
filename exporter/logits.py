"""Differences between logits of the same tokens, and how well logits foretell a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from .strips import in_spans, row_spans

Array = np.ndarray[Any, np.dtype[Any]]
Differences = tuple[float, float, float, float]
_ROWS = 16  # at a time: in f64, all rows of a large vocabulary take more memory than a layer


def compare(reference: Array, found: Array) -> Differences:
    """Largest and mean difference of logits, KL in nats a row, and share of rows with the same largest one."""
    difference = np.abs(reference - found)
    spans = row_spans(len(reference), _ROWS)
    divergence = np.concatenate(list(in_spans(lambda start, end: _kl(reference[start:end], found[start:end]), spans)))
    agreement = (reference.argmax(axis=1) == found.argmax(axis=1)).mean()
    return float(difference.max()), float(difference.mean()), float(divergence.mean()), float(agreement)


def negative_log_likelihood(logits: Array, ids: Array) -> Array:
    """In nats, of the id that follows each row; f64 [num_rows]."""
    spans = row_spans(len(logits), _ROWS)

    def some(start: int, end: int) -> Array:
        return np.asarray(-_log_softmax(logits[start:end])[np.arange(end - start), ids[start:end]])

    return np.concatenate(list(in_spans(some, spans)))


def _kl(reference: Array, found: Array) -> Array:
    """Of each row, in nats."""
    left, right = _log_softmax(reference), _log_softmax(found)
    return np.asarray((np.exp(left) * (left - right)).sum(axis=1))


def _log_softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
