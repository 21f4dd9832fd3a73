"""Dimensions of what can be trained, checked once here. Knows nothing about torch."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import TrainingOptionError

EAGLE_VERSIONS = (1, 3)
MAX_DEPTH = 8  # tokens of a chain whose acceptance is counted


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

    hidden_size: int = 256
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    ffn_size: int = 768

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

    num_heads: int = 4
    num_blocks: int = 1
    own_output: bool = False
    decay: float = 0.8
    taps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_at_least(self, 1, "num_heads", "num_blocks")
        _check_depth(self.num_heads, "num_heads", self.decay)


@dataclass(frozen=True, slots=True)
class SpeculatorShape:
    """An MLP speculator. tie_weights: all stages share embedding, output layer and norm. taps: as of Medusa's heads.

    Raises:
        TrainingOptionError: a value outside its range.
    """

    num_stages: int = 3
    inner_dim: int = 256
    tie_weights: bool = True
    decay: float = 1.0
    taps: tuple[int, ...] = ()

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

    version: int = 3
    unroll: int = 4
    ffn_size: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    draft_vocab: int | None = None
    taps: tuple[int, ...] = ()
    decay: float = 0.8
    noise: float = 0.0
    regression: float = 0.0

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
