"""Engines to hammer, drawn from a seed: a bundle of each kind in turn, with options of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from seeds import KINDS

PER_GROUP = 60  # requests
_TWO_ENGINES = 0.25  # how often a group has two


@dataclass(frozen=True)
class Group:
    """An engine and the numbers of its requests."""

    name: str
    kind: str
    options: dict[str, Any]
    quiet_options: dict[str, Any]
    has_store: bool
    numbers: range
    again: str


def draw_group(seed: int, number: int) -> list[Group]:
    """One engine, or two at once that share the requests of the group."""
    chooser = random.Random(f"group-{seed}-{number}")
    num_engines = 2 if chooser.random() < _TWO_ENGINES else 1
    return [_draw(chooser, seed, number, index, num_engines) for index in range(num_engines)]


def _draw(chooser: random.Random, seed: int, number: int, index: int, num_engines: int) -> Group:
    lasting = {
        "max_context": chooser.choice((None, 96, 128)),
        "max_draft_tokens": chooser.choice((8, 15, 15, 40)),
        "draft_window": chooser.choice((None, 0, 64)),
        "calibration": "off",
    }
    own = {
        "num_sequences": chooser.choice((1, 2, 3, 4, 8, 16)),
        "threads": chooser.choice((1, 2, 3)),
        "prefill_chunk": chooser.choice((None, 16, 33)),
        "calibration": chooser.choice(("off", "off", "kept")),
        "max_wait_ms": chooser.choice((None, 1, 60_000)),
        "queue": chooser.choice((0, 2, 64)),
    }
    first = number * PER_GROUP + index * (PER_GROUP // num_engines)
    return Group(
        name=f"{seed}-{number}-{index}",
        kind=KINDS[(number + index * 2) % len(KINDS)],
        options=lasting | own,
        quiet_options=lasting | {"threads": 1},
        has_store=chooser.random() < 1 / 3,
        numbers=range(first, first + PER_GROUP // num_engines),
        again=f"python tests/hammer/hammer.py --seed {seed} --first-group {number} --groups 1",
    )
