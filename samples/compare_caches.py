"""What a bundle's type of cache costs: logits and greedy text of bundles that differ in it, against the first one's.

    for dtype in f32 f16 int8; do
        pilotfish export TARGET --linear f16 --embedding f16 --lm-head f16 --cache-dtype $dtype --out build/$dtype; done
    python samples/compare_caches.py build/f32 build/f16 build/int8 --prompts PROMPTS.jsonl

Weights of f16 show the cache's rounding alone: beside integer weights activations are rounded to 8 bits, and what a
bit of the cache changes there is as much again. Logits are compared over prompts and the first bundle's greedy text.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pilotfish import Engine

NUM_PROMPT_TOKENS = 400
NUM_NEW_TOKENS = 64
Logits = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Text:
    """What one bundle makes of a prompt."""

    ids: list[int]  # the first bundle's: prompt and continuation
    logits: Logits  # [len(ids), vocabulary]
    continuation: list[int]  # its own


def texts_of(bundle: str, prompts: list[str], like: list[Text], device: str) -> list[Text]:
    """Every prompt's text; `like`: those of the first bundle, empty for itself."""
    found = []
    with Engine(bundle, device=device, max_context=1024, calibration="off") as engine:
        for index, prompt in enumerate(prompts):
            start = list(engine.encode(prompt))[:NUM_PROMPT_TOKENS]
            result = engine.generate(start, max_new_tokens=NUM_NEW_TOKENS, source="plain", ignore_eos=True)
            ids = like[index].ids if like else [*start, *result.token_ids]
            found.append(Text(ids, engine.logits(ids).astype(np.float64), list(result.token_ids)))
    return found


def log_softmax(logits: Logits) -> Logits:
    """Of each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def compare(expected: list[Text], found: list[Text]) -> str:
    """One line of differences."""
    largest, kl, agree = [], [], []
    for one, other in zip(expected, found, strict=True):
        left, right = log_softmax(one.logits), log_softmax(other.logits)
        largest.append(np.abs(one.logits - other.logits).max())
        kl.append((np.exp(left) * (left - right)).sum(axis=1))
        agree.append(one.logits.argmax(axis=1) == other.logits.argmax(axis=1))
    same = sum(one.continuation == other.continuation for one, other in zip(expected, found, strict=True))
    return (
        f"largest difference of a logit {max(largest):.3f}, KL {np.concatenate(kl).mean():.2e} nats a token, "
        f"likeliest token equal {np.concatenate(agree).mean():.4f}, greedy texts equal {same} of {len(found)}"
    )


def main() -> None:
    """Prints a line a bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+")
    parser.add_argument("--prompts", type=Path, default=Path(__file__).parent / "copy_heavy.jsonl")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    with args.prompts.open(encoding="utf-8") as lines:
        prompts = [json.loads(line)["prompt"] for line in lines]
    expected = texts_of(args.bundles[0], prompts, [], args.device)
    for bundle in args.bundles[1:]:
        print(f"{bundle}: {compare(expected, texts_of(bundle, prompts, expected, args.device))}", flush=True)


if __name__ == "__main__":
    main()
