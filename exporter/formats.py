"""The format each part of a model is stored in: the user's, else that of the checkpoint's own blocks, or a default."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .options import PARTS, FormatChoice, ModelFormats
from .trace import first_names

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from transformers import PreTrainedModel

    from .sources import WeightSource

# GGUF block types and the format that holds them best: the first three bit for bit.
_EXACT = {"Q4_0": "int4", "Q4_1": "int4_asym", "Q8_0": "int8"}
_NEAREST = {
    "Q2_K": "int4_asym",
    "Q3_K": "int4_asym",
    "Q4_K": "int4_asym",
    "Q5_0": "int8",
    "Q5_1": "int8",
    "Q5_K": "int8",
    "Q6_K": "int8",
}
_FOUR_BIT = ("int4", "int4_asym")


@dataclass(frozen=True, slots=True)
class FormatDecision:
    """The format of one part of a model, and why."""

    part: str  # one of PARTS
    format: str
    reason: str
    warning: str | None = None


def choose_formats(
    choice: FormatChoice, default: ModelFormats, model: PreTrainedModel, source: WeightSource
) -> tuple[FormatDecision, ...]:
    """One decision a part, in the order of PARTS.

    A part whose matrices have different types follows the type of most weights; blocks of Q4_0 beside Q4_1 become
    int4_asym, which holds both exactly.
    """
    types = _stored_types(model, source)
    return tuple(_decide(part, getattr(choice, part), getattr(default, part), types[part]) for part in PARTS)


def model_formats(decisions: tuple[FormatDecision, ...]) -> ModelFormats:
    """The decided formats."""
    return ModelFormats(**{decision.part: decision.format for decision in decisions})


def _stored_types(model: PreTrainedModel, source: WeightSource) -> dict[str, Counter[str]]:
    """For each part the number of weights of each stored type."""
    names = first_names(model)
    output_layer: Callable[[], torch.nn.Module | None] = model.get_output_embeddings
    embedding, head = model.get_input_embeddings(), output_layer()
    types: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    for module_name, module in model.named_modules():
        part = "embedding" if module is embedding else "lm_head" if module is head else "linear"
        for key, weight in module.named_parameters(recurse=False):
            name = f"{module_name}.{key}" if module_name else key
            stored = source.stored_type(names[name]) if weight.ndim > 1 else None
            if stored is not None:
                types[part][stored] += weight.numel()
    return types


def _decide(part: str, asked: str | None, default: str, types: Counter[str]) -> FormatDecision:
    followed = _followed(types)
    listed = ", ".join(f"{count / types.total():.0%} {name}" for name, count in types.most_common())
    if asked is not None:
        return FormatDecision(part, asked, "as asked for", _warning(part, asked, followed, types, listed))
    if followed is None:
        return FormatDecision(part, default, f"default for weights in {listed}" if listed else "default")
    exact = all(_is_exact(name, followed) for name in types)
    return FormatDecision(part, followed, f"{'bit for bit' if exact else 'nearest to'} the file's {listed}")


def _followed(types: Counter[str]) -> str | None:
    """The format that holds the part's blocks best; None if most of its weights are plain floats."""
    votes: Counter[str] = Counter()
    for name, count in types.items():
        votes[_EXACT.get(name) or _NEAREST.get(name) or ""] += count
    winner = votes.most_common(1)[0][0] if votes else ""
    if winner == "int4" and "int4_asym" in votes:
        return "int4_asym"
    return winner or None


def _is_exact(stored: str, format_name: str) -> bool:
    return _EXACT.get(stored) == format_name or (stored, format_name) == ("Q4_0", "int4_asym")


def _warning(part: str, asked: str, followed: str | None, types: Counter[str], listed: str) -> str | None:
    """Coarse blocks whose grid is not that of another coarse format lose far more than plain weights do."""
    coarse = [name for name in types if name in (*_EXACT, *_NEAREST) and name != "Q8_0"]
    if asked not in _FOUR_BIT or all(_is_exact(name, asked) for name in coarse):
        return None
    twice = f"{part} {asked} quantises the file's {listed} a second time, which costs quality"
    return f"{twice}; {followed} follows the file"
