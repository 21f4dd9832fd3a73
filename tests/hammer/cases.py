"""Requests drawn from a seed: every axis below is drawn by itself, so that each option meets each other one."""

from __future__ import annotations

import dataclasses
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

EOS_ID = 257
NUM_IDS = 258  # of the tiny bundles: one a byte, <s> and </s>
NEW_TOKENS = 24
GREEDY_BELOW = 1e-37  # as GenerateOptions says of temperatures

GRAMMAR = 'start: (word " ")~1..6 "."\nword: /[a-d]{1,3}/ | "<" word ">"\n'
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"enum": ["x", "yz", "é"]}},
    "required": ["a", "b"],
}

Options = dict[str, Any]

# What may be asked of one generation, by axis. The first choice of an axis is the usual one.
AXES: dict[str, dict[str, Options]] = {
    "source": {
        name: {"source": name} for name in ("auto", "plain", "draft", "head", "lookup", "lookup+draft", "lookup+head")
    },
    "shape": {
        "as many as pay": {},
        "none": {"num_draft_tokens": 0},
        "chain of 3": {"num_draft_tokens": 3},
        "chain of 8": {"num_draft_tokens": 8},
        "dynamic tree": {"tree": "dynamic", "tree_nodes": 8, "tree_depth": 4},
        "too many": {"num_draft_tokens": 64},
    },
    "temperature": {
        "greedy": {},
        "all but greedy": {"temperature": 1e-40},
        "cool": {"temperature": 0.7},
        "hot": {"temperature": 1.6},
    },
    "filter": {
        "no filter": {},
        "top_k": {"top_k": 20},
        "top_p": {"top_p": 0.9},
        "min_p": {"min_p": 0.05},
        "typical_p": {"typical_p": 0.8},
        "all filters": {"top_k": 60, "top_p": 0.97, "min_p": 0.01, "typical_p": 0.97},
    },
    "penalties": {
        "no penalty": {},
        "repetition": {"repetition_penalty": 1.3},
        "presence and frequency": {"presence_penalty": 0.4, "frequency_penalty": 0.2, "penalty_window": 9},
        "no_repeat_ngram": {"no_repeat_ngram_size": 2},
    },
    "bans": {
        "no bias": {},
        "eos liked": {"logit_bias": {EOS_ID: 5.0}},
        "some banned": {"logit_bias": {index: float("-inf") for index in range(0, NUM_IDS, 3)}},
        "all banned": {"logit_bias": {index: float("-inf") for index in range(NUM_IDS)}},
        "no such id": {"logit_bias": {NUM_IDS: 1.0}},
    },
    "structure": {
        "free": {},
        "regex": {"regex": "[ab]{2}[a-zé]*!?"},
        "grammar": {"grammar": GRAMMAR},
        "json_schema": {"json_schema": SCHEMA},
        "unfulfillable": {"regex": r"a\zb"},
    },
    "stop": {
        "no stop": {},
        "strings": {"stop": ["a", "\n", "e "]},
        "special": {"stop": ["<s>", "q"]},
        "ids": {"stop_ids": [EOS_ID, 77, 101]},
    },
    "length": {
        "usual length": {"max_new_tokens": NEW_TOKENS},
        "one token": {"max_new_tokens": 1},
        "at least 6": {"max_new_tokens": NEW_TOKENS, "min_new_tokens": 6},
        "to the end": {"max_new_tokens": 4096},
    },
    "eos": {"eos ends": {}, "ignore_eos": {"ignore_eos": True}},
    "logprobs": {"no logprobs": {}, "1": {"logprobs": 1}, "5": {"logprobs": 5}, "256": {"logprobs": 256}},
    "echo": {"no echo": {}, "echo": {"echo": True}},
    "prefix": {"reuse": {}, "no reuse": {"reuse_prefix": False}},
    "explain": {"unexplained": {}, "explain": {"explain": True}},
    "acceptance": {
        "exact": {},
        "typical": {"typical_acceptance": (0.3, 0.09)},
    },
}
# How a request is made, and what becomes of it.
WAYS = (
    *("generate", "stream", "cancel", "cancel elsewhere", "close", "close elsewhere", "drop", "batch", "chat"),
    *("astream", "acancel", "cancel task", "adrop", "logits", "choices", "session"),
)
PROMPTS = ("words", "repeats", "shared", "long", "one id", "longest", "too long", "empty", "unknown id")
# Mostly what works, so that options meet in running generations and not in refusals.
_RARE = ("too many", "all banned", "no such id", "unfulfillable", "too long", "empty", "unknown id")
_RARELY = 0.08
_USUAL = 0.4  # how often an axis has its first choice, whatever the others have


@dataclass(frozen=True)
class Case:
    """One request: how it is made, of what, and after how many events it is cut off where its way says so."""

    name: str
    way: str
    prompts: tuple[tuple[int, ...], ...]
    options: Options
    cut: int
    choices: dict[str, str] = field(compare=False)

    def of_one(self, prompt: tuple[int, ...]) -> Case:
        """One generation of a batch."""
        return dataclasses.replace(self, way="generate", prompts=(prompt,))

    def is_reproducible(self, *, has_store: bool) -> bool:
        """Whether its tokens are promised: not where what is drafted decides, in a lossy generation, and drafts are as
        long as pays or follow what was found in a store that others write to."""
        options = self.options
        is_lossy = "typical_acceptance" in options and options.get("temperature", 0) >= GREEDY_BELOW
        if self.way == "logits" or not is_lossy or options["source"] == "plain":
            return True
        is_fixed = "tree" in options or "num_draft_tokens" in options
        return is_fixed and not (has_store and options["source"].startswith("lookup"))


def draw_case(seed: int, number: int, kind: str, max_context: int) -> Case:
    """The seed and the number say all about a request."""
    chooser = random.Random(f"case-{seed}-{number}")
    choices = {axis: _choice(chooser, list(values)) for axis, values in AXES.items()}
    choices["way"] = chooser.choice(WAYS)
    choices["prompt"] = _choice(chooser, list(PROMPTS))
    if chooser.random() > _RARELY:
        make_sense(choices, kind, chooser)
    options: Options = {"seed": chooser.randrange(2**64)}
    for axis, values in AXES.items():
        options |= values[choices[axis]]
    num_prompts = chooser.randint(1, 6) if choices["way"] == "batch" else 1
    prompts = tuple(_prompt(chooser, choices["prompt"], max_context) for _ in range(num_prompts))
    return Case(f"{seed}-{number}", choices["way"], prompts, options, chooser.randint(0, 12), choices)


def _choice(chooser: random.Random, values: list[str]) -> str:
    if chooser.random() < _USUAL:
        return values[0]
    weights = [_RARELY if value in _RARE else 1.0 for value in values]
    return chooser.choices(values, weights)[0]


def make_sense(choices: dict[str, str], kind: str, chooser: random.Random) -> None:
    """Takes back what contradicts another choice or needs what the kind of bundle lacks."""
    has_draft = kind in ("pair", "int8_cache")
    ours, others = ("draft", "head") if has_draft else ("head", "draft")
    choices["source"] = choices["source"].replace(others, ours)
    choices["shape"] = _fitting_shape(choices["source"], choices["shape"])
    if choices["structure"] != "free":
        choices["eos"] = "eos ends"
        if choices["bans"] == "some banned" and chooser.random() > _RARELY:  # it would end in dead ends
            choices["bans"] = "no bias"
    if choices["acceptance"] != "exact" and choices["temperature"] in ("greedy", "all but greedy"):
        choices["temperature"] = chooser.choice(("cool", "hot"))


def _fitting_shape(source: str, shape: str) -> str:
    if (source == "plain" and shape != "none") or (source == "lookup" and shape == "dynamic tree"):
        return "as many as pay"
    return shape


_WORDS = ("a b a b ", "the sea ", "is blue. ", "\n", "été ", "x = 1; ", "e e ", "why? ")
_SHARED = "".join(_WORDS) * 2


def _prompt(chooser: random.Random, kind: str, max_context: int) -> tuple[int, ...]:
    def some_bytes(length: int) -> list[int]:
        return [chooser.randrange(256) for _ in range(length)]

    if kind == "words":
        ids = list("".join(chooser.choices(_WORDS, k=chooser.randint(1, 6))).encode())
    elif kind == "repeats":
        ids = some_bytes(chooser.randint(2, 6)) * chooser.randint(3, 8)
    elif kind == "shared":
        ids = list(_SHARED.encode())[: chooser.randint(20, 70)] + some_bytes(chooser.randint(0, 5))
    elif kind == "long":
        ids = some_bytes(max_context * 3 // 4)
    elif kind == "longest":
        ids = some_bytes(max_context - chooser.randint(1, 3))
    elif kind == "too long":
        ids = some_bytes(max_context + chooser.randint(0, 1))
    elif kind == "unknown id":
        ids = [1, 2, NUM_IDS]
    else:
        ids = some_bytes(1) if kind == "one id" else []
    return tuple(ids)


def pairs_of(choices: dict[str, str]) -> set[tuple[str, str]]:
    """The choices of two axes that meet in one request."""
    return set(itertools.combinations([f"{axis}: {choice}" for axis, choice in sorted(choices.items())], 2))
