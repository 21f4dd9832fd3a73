"""Flags that several commands share: a group is a dataclass whose fields are flags, named as the engine's keywords."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer

from pilotfish.bindings import InvalidArgumentError, limits
from pilotfish.runtime.draft_tree import DYNAMIC
from pilotfish.runtime.options import FLAG, GenerateKeywords, GenerateOptions
from pilotfish.runtime.speculation import DEFAULT_CALIBRATION

from .arguments import (
    Calibration,
    Device,
    LogitBias,
    LookupStore,
    MaxContext,
    MeasuredSeed,
    MemoryBudget,
    Seed,
    Threads,
    Tree,
    TreeDepth,
    TreeNodes,
    parse_logit_bias,
)

Group = TypeVar("Group")
NEEDS_TEMPERATURE = ("top_k", "top_p", "min_p", "typical_p")


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
        return max(least, self.tree_nodes or 0)


def options_as_flags(*names: str) -> Callable[[type[Group]], type[Group]]:
    """Makes a class a group that has these of GenerateOptions' options too, or all that are flags, first of its own."""
    hints = get_type_hints(GenerateOptions)
    chosen = [field for field in fields(GenerateOptions) if FLAG in field.metadata and field.name in (names or hints)]

    def make(group: type[Group]) -> type[Group]:
        options = {each.name: Annotated[hints[each.name], typer.Option(help=each.metadata[FLAG])] for each in chosen}
        group.__annotations__ = options | group.__annotations__
        for each in chosen:
            setattr(group, each.name, each.default)
        return dataclass(frozen=True)(group)

    return make


@options_as_flags()
class SamplingFlags:
    """How a token is chosen."""

    logit_bias: LogitBias = None
    seed: Seed = None

    def keywords(self) -> dict[str, Any]:
        """As Engine.generate takes them; InvalidArgumentError if a bias is no ID=BIAS, or for a filter without use."""
        _require_temperature(vars(self))
        return vars(self) | {"logit_bias": parse_logit_bias(self.logit_bias)}


@options_as_flags("temperature", "top_k", "top_p")
class ChoiceFlags:
    """How tokens are chosen while drafting is measured: every way to draft has the same text to draft."""

    seed: MeasuredSeed = 0

    def keywords(self) -> GenerateKeywords:
        """As Engine.generate takes them; InvalidArgumentError if a filter is given for greedy decoding."""
        _require_temperature(vars(self))
        return cast("GenerateKeywords", dict(vars(self)))


def _require_temperature(options: Mapping[str, Any]) -> None:
    """InvalidArgumentError if an option is given that greedy decoding has no use for."""
    for field in fields(GenerateOptions):
        value = options.get(field.name, field.default)
        if options["temperature"] == 0 and field.name in NEEDS_TEMPERATURE and value != field.default:
            raise InvalidArgumentError(
                f"{field.name} is {value}, but temperature 0 takes the likeliest token anyway: give --temperature too"
            )


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
