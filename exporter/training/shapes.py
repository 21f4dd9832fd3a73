"""Dimensions of what can be trained, checked once here. Knows nothing about torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .errors import TrainingOptionError
from .flags import layers, option, yes_or_no

EAGLE_VERSIONS = (1, 3)
MAX_DEPTH = 8  # tokens of a chain whose acceptance is counted
_DECAY = ("--decay", "weight of each further guess relative to the one before", float)
_TAPS = ("--taps", "read also the streams into these layers of the target, comma-separated", layers)


def check_at_least(owner: object, minimum: float, *names: str) -> None:
    """Refuses fields of an option class below a minimum.

    Raises:
        TrainingOptionError: names the field and its value.
    """
    for name in names:
        value = getattr(owner, name)
        if value < minimum:
            raise TrainingOptionError(f"{name} is {value}; it must be at least {minimum}")


def _check_depth(depth: int, name: str, decay: float) -> None:
    if depth > MAX_DEPTH:
        raise TrainingOptionError(f"{name} is {depth}; at most {MAX_DEPTH} can be trained")
    if not 0 < decay <= 1:
        raise TrainingOptionError(f"decay is {decay}; it must lie above 0 and be at most 1")


@dataclass(frozen=True, slots=True)
class DraftShape:
    """Dimensions of the draft, a Llama-type decoder with tied embeddings.

    Raises:
        TrainingOptionError: a dimension below 1, or heads that do not divide.
    """

    summary: ClassVar[str] = "Distil a small draft model for a target."

    hidden_size: int = option("--hidden", "hidden size of the draft", default=256)
    num_layers: int = option("--layers", "layers of the draft", default=4)
    num_heads: int = option("--heads", "attention heads", default=4)
    num_kv_heads: int = option("--kv-heads", "key and value heads", default=2)
    ffn_size: int = option("--ffn", "width of the feed-forward layer", default=768)

    def __post_init__(self) -> None:
        check_at_least(self, 1, "hidden_size", "num_layers", "num_heads", "num_kv_heads", "ffn_size")
        if self.hidden_size % (2 * self.num_heads):
            raise TrainingOptionError(
                f"hidden_size is {self.hidden_size}; it must be a multiple of 2 * num_heads = {2 * self.num_heads}"
            )
        if self.num_heads % self.num_kv_heads:
            raise TrainingOptionError(
                f"num_heads is {self.num_heads}; it must be a multiple of num_kv_heads = {self.num_kv_heads}"
            )
        for name in ("hidden_size", "ffn_size"):
            if getattr(self, name) % 32:
                raise TrainingOptionError(f"{name} is {getattr(self, name)}; low-bit weights need a multiple of 32")


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """Medusa heads of some residual blocks each.

    own_output: every head has an output layer, which begins as the target's; without it all share the target's.
    decay: weight of each head's loss relative to the one before. taps: layers of the target whose input the heads read
    besides its last state; published heads have none.

    Raises:
        TrainingOptionError: a value outside its range.
    """

    summary: ClassVar[str] = "Train Medusa heads on a target's hidden states."

    num_heads: int = option("--num-heads", "heads, each for one more token ahead", default=4)
    num_blocks: int = option("--blocks", "residual blocks of a head", default=1)
    own_output: bool = option(
        "--own-output", "heads have output layers of their own: yes or no", yes_or_no, default=False
    )
    taps: tuple[int, ...] = option(*_TAPS, default=())
    decay: float = option(*_DECAY, default=0.8)

    def __post_init__(self) -> None:
        check_at_least(self, 1, "num_heads", "num_blocks")
        _check_depth(self.num_heads, "num_heads", self.decay)


@dataclass(frozen=True, slots=True)
class SpeculatorShape:
    """An MLP speculator. tie_weights: all stages share embedding, output layer and norm. taps: as of Medusa's heads.

    Raises:
        TrainingOptionError: a value outside its range.
    """

    summary: ClassVar[str] = "Train an MLP speculator on a target's hidden states."

    num_stages: int = option("--stages", "stages, each for one more token ahead", default=3)
    inner_dim: int = option("--inner", "size of the state between stages", default=256)
    tie_weights: bool = option(
        "--tie", "stages share embedding, output layer and norm: yes or no", yes_or_no, default=True
    )
    taps: tuple[int, ...] = option(*_TAPS, default=())
    decay: float = option(*_DECAY, default=1.0)

    def __post_init__(self) -> None:
        check_at_least(self, 1, "num_stages", "inner_dim")
        _check_depth(self.num_stages, "num_stages", self.decay)
        if self.inner_dim % 32:
            raise TrainingOptionError(f"inner_dim is {self.inner_dim}; low-bit weights need a multiple of 32")


@dataclass(frozen=True, slots=True)
class EagleShape:
    """An EAGLE-1 or EAGLE-3 head; sizes that are None are the target's.

    unroll: steps over its own states that are trained. draft_vocab: an EAGLE-3 head scores so many of the most
    frequent tokens of the last stage's text, None all. taps: three of the target's layers whose input an EAGLE-3 head
    reads; none given: 2, the middle one and the third from last. noise: half-width of the uniform noise on the states
    that come in. regression: weight of the distance to the target's next state, of EAGLE-1 (its paper has 10 and a
    noise of 0.1 with one step).

    Raises:
        TrainingOptionError: a value outside its range.
    """

    summary: ClassVar[str] = "Train an EAGLE head on a target's hidden states."

    version: int = option("--version", "3: taps, unrolled; 1: the last state, regression", default=3)
    unroll: int = option("--unroll", "steps over its own states that are trained", default=4)
    ffn_size: int | None = option("--ffn", "width of the feed-forward layer; default: the target's", default=None)
    num_heads: int | None = option("--heads", "attention heads; default: the target's", default=None)
    num_kv_heads: int | None = option("--kv-heads", "key and value heads; default: the target's", default=None)
    draft_vocab: int | None = option("--draft-vocab", "score so many most frequent tokens; default: all", default=None)
    taps: tuple[int, ...] = option(
        "--taps", "three layers of the target, comma-separated; default: 2,middle,third last", layers, default=()
    )
    decay: float = option(*_DECAY, default=0.8)
    noise: float = option("--noise", "half-width of the noise on incoming states", float, default=0.0)
    regression: float = option(
        "--regression", "version 1: weight of the distance to the target's next state", float, default=0.0
    )

    def __post_init__(self) -> None:
        if self.version not in EAGLE_VERSIONS:
            raise TrainingOptionError(f"version is {self.version}; EAGLE heads of version 1 and 3 can be trained")
        check_at_least(self, 0, "noise", "regression")
        given = [name for name in ("ffn_size", "num_heads", "num_kv_heads", "draft_vocab") if getattr(self, name)]
        check_at_least(self, 1, "unroll", *given)
        _check_depth(self.unroll, "unroll", self.decay)
        if self.version == 1 and (self.draft_vocab or self.taps):
            raise TrainingOptionError(
                "an EAGLE-1 head uses the target's output layer and last state: no draft_vocab, no taps"
            )
        if self.version != 1 and self.regression:
            raise TrainingOptionError(f"regression is {self.regression}; EAGLE-3 heads have none")
        if self.taps and len(set(self.taps)) != 3:  # noqa: PLR2004
            raise TrainingOptionError(f"taps are {self.taps}; an EAGLE-3 head reads three different ones")


HeadShape = MedusaShape | SpeculatorShape | EagleShape
SHAPES: dict[str, type[DraftShape | HeadShape]] = {
    "draft": DraftShape,
    "medusa": MedusaShape,
    "mlp": SpeculatorShape,
    "eagle": EagleShape,
}
