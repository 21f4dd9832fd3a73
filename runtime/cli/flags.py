"""Flags that several commands share: a group is a dataclass whose fields are flags, named as the engine's keywords."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from pilotfish.bindings import limits
from pilotfish.runtime.draft_tree import DYNAMIC, room_for
from pilotfish.runtime.options import GenerateKeywords
from pilotfish.runtime.speculation import DEFAULT_CALIBRATION

from .arguments import (
    Calibration,
    Device,
    FrequencyPenalty,
    LogitBias,
    LookupStore,
    MaxContext,
    MeasuredSeed,
    MemoryBudget,
    MinP,
    NoRepeatNgramSize,
    PenaltyWindow,
    PresencePenalty,
    RepetitionPenalty,
    Seed,
    Temperature,
    Threads,
    TopK,
    TopP,
    Tree,
    TreeDepth,
    TreeNodes,
    TypicalP,
    parse_logit_bias,
)

_DEFAULTS = limits.GENERATE


@dataclass(frozen=True)
class EngineFlags:
    """How a bundle is loaded."""

    device: Device = "cpu"
    threads: Threads = None
    memory_budget: MemoryBudget = None
    max_context: MaxContext = None

    def keywords(self) -> dict[str, Any]:
        """As Engine takes them."""
        return asdict(self)


@dataclass(frozen=True)
class LearningFlags:
    """What drafting may draw on beside the request."""

    calibration: Calibration = DEFAULT_CALIBRATION
    lookup_store: LookupStore = None

    def keywords(self) -> dict[str, Any]:
        """As Engine takes them."""
        return asdict(self)


@dataclass(frozen=True)
class TreeFlags:
    """Whether drafts are trees."""

    tree: Tree = None
    tree_nodes: TreeNodes = None
    tree_depth: TreeDepth = None

    def keywords(self) -> GenerateKeywords:
        """As Engine.generate takes them."""
        nodes = self.tree_nodes
        if self.tree == DYNAMIC and nodes is None:
            nodes = limits.ENGINE.max_draft_tokens  # also where a command makes more room, to time wider passes
        return GenerateKeywords(tree=self.tree, tree_nodes=nodes, tree_depth=self.tree_depth)

    def room(self, least: int) -> int:
        """The max_draft_tokens of an engine that has room for the tree, and ``least`` anyway."""
        return max(least, room_for(self.tree, self.tree_nodes))


@dataclass(frozen=True)
class SamplingFlags:
    """How a token is chosen."""

    temperature: Temperature = _DEFAULTS.temperature
    top_k: TopK = _DEFAULTS.top_k
    top_p: TopP = _DEFAULTS.top_p
    min_p: MinP = _DEFAULTS.min_p
    typical_p: TypicalP = _DEFAULTS.typical_p
    repetition_penalty: RepetitionPenalty = _DEFAULTS.repetition_penalty
    presence_penalty: PresencePenalty = _DEFAULTS.presence_penalty
    frequency_penalty: FrequencyPenalty = _DEFAULTS.frequency_penalty
    penalty_window: PenaltyWindow = _DEFAULTS.penalty_window
    no_repeat_ngram_size: NoRepeatNgramSize = _DEFAULTS.no_repeat_ngram_size
    logit_bias: LogitBias = None
    seed: Seed = None

    def keywords(self) -> dict[str, Any]:
        """As Engine.generate takes them; InvalidArgumentError if a bias is no ID=BIAS."""
        return asdict(self) | {"logit_bias": parse_logit_bias(self.logit_bias)}


@dataclass(frozen=True)
class ChoiceFlags:
    """How tokens are chosen while drafting is measured: every way to draft has the same text to draft."""

    temperature: Temperature = _DEFAULTS.temperature
    top_k: TopK = _DEFAULTS.top_k
    top_p: TopP = _DEFAULTS.top_p
    seed: MeasuredSeed = 0

    def keywords(self) -> GenerateKeywords:
        """As Engine.generate takes them."""
        return GenerateKeywords(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` as Typer reads it: in place of a parameter whose type is a group stand the group's flags."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            parameters += _flags(parameter.annotation)
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def call(**values: Any) -> None:
        filled = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **filled)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect looks at first
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _flags(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(group)
    ]
