"""The format of each matrix of a model: the user's, else that of the checkpoint's own blocks, or a default."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from .options import PARTS, FormatChoice, ModelFormats
from .trace import first_names

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from transformers import PreTrainedModel

    from .passes import PackedWeight, Plan
    from .sources import WeightSource

# GGUF block types and the format that loses least of those of about their size: all of these are kept as they are,
_KEPT = {
    "Q4_0": "int4",
    "Q4_1": "int4_asym",
    "Q4_K": "int4_asym",  # but for the rounding of its scales
    "Q5_0": "int8",
    "Q8_0": "int8",
    "IQ4_NL": "int8",
    "IQ4_XS": "int8",  # but for the rounding of its scales
    "MXFP4": "int8",
    "W4": "int4",  # these are of prequantised folders
    "W4 WITH ZEROS": "int4_asym",  # but for the rounding of scale times zero
    "W8": "int8",
}
# and these are quantised anew.
_NEAREST = {
    "Q2_K": "int4_asym",
    "Q3_K": "int4",  # whose grid has -4 to 3 in steps of a half
    "IQ1_S": "int4",
    "IQ1_M": "int4_asym",
    "IQ2_XXS": "int4_asym",
    "IQ2_XS": "int4_asym",
    "IQ2_S": "int4_asym",
    "IQ3_XXS": "int4_asym",
    "IQ3_S": "int4_asym",
    "TQ1_0": "int4",
    "TQ2_0": "int4",
    "NVFP4": "int8",
    "Q5_1": "int8",
    "Q5_K": "int8",
    "Q6_K": "int8",
    "W8 WITH ZEROS": "int8",
    "W4 IN ANY ORDER": "int8",  # groups of columns that are not beside each other
    "W8 IN ANY ORDER": "int8",
    "FP8": "int8",
    "FP4": "int8",
    "NF4": "int8",
}
_FORMAT_OF = {**_KEPT, **_NEAREST}
_FINER = ("int4", "int4_asym", "int8", "f16", "f32")  # a matrix of several types takes the finest of their formats
FOUR_BIT = ("int4", "int4_asym")
_BESIDE_BLOCKS = "f16"  # of a plain matrix among blocks
_EXACT = {
    *((kind, name) for kind, name in _KEPT.items() if kind not in ("Q4_K", "IQ4_XS", "W4 WITH ZEROS")),
    *((kind, name) for kind in ("Q4_0", "W4") for name in ("int4_asym", "int8")),
    ("W4 WITH ZEROS", "int8"),
    *(("F16", name) for name in ("f16", "f32")),
    ("F32", "f32"),
}


@dataclass(frozen=True, slots=True)
class FormatDecision:
    """The formats of one part of a model, and why."""

    part: str  # one of PARTS
    format: str  # of most of its weights
    reason: str
    warning: str | None = None
    shares: tuple[tuple[str, float], ...] = ()  # of the part's weights that each format has, the largest first


@dataclass(frozen=True, slots=True)
class MatrixFormats:
    """Which format each matrix of a model is to have."""

    pinned: Mapping[str, str]  # by part: one format for all of its matrices
    asked: Container[str]  # parts whose format the user has pinned
    stored: Mapping[str, str]  # type of each matrix in the checkpoint
    mixed: Mapping[tuple[str, ...], str] = field(default_factory=dict)  # by the parameters that make up a matrix
    mixed_reason: str = ""

    def of(self, part: str, names: tuple[str, ...]) -> str:
        """The format of a matrix of a part; where its types differ, the one that loses least of all of them."""
        if part == "linear" and names in self.mixed:
            return self.mixed[names]
        pinned = self.pinned.get(part)
        return pinned or _finest([_FORMAT_OF.get(self.stored.get(name, ""), _BESIDE_BLOCKS) for name in names])

    def decisions(self, plan: Plan) -> tuple[FormatDecision, ...]:
        """What was decided about the matrices of a plan: one decision a part, in the order of PARTS."""
        weights: dict[str, list[PackedWeight]] = {part: [] for part in PARTS}
        for weight in plan.weights.values():
            weights[weight.part].append(weight)
        weights["lm_head"] = weights["lm_head"] or weights["embedding"]  # a tied one in the same format
        return tuple(self._decision(part, plan, weights[part]) for part in PARTS)

    def _decision(self, part: str, plan: Plan, weights: Sequence[PackedWeight]) -> FormatDecision:
        formats: Counter[str] = Counter()
        types: Counter[str] = Counter()
        exact = True
        for weight in weights:
            for name in weight.sources:
                kind = self.stored.get(name)
                formats[weight.format] += math.prod(plan.shape(name))
                if kind is not None:
                    types[kind] += math.prod(plan.shape(name))
                    exact = exact and (kind, weight.format) in _EXACT and weight.scale == 1
        shares = tuple((name, count / formats.total()) for name, count in formats.most_common())
        main, listed = (
            shares[0][0],
            ", ".join(f"{count / types.total():.0%} {name}" for name, count in types.most_common()),
        )
        if part == "linear" and self.mixed:
            return FormatDecision(part, main, self.mixed_reason, None, shares)
        if part in self.asked:
            return FormatDecision(part, main, "as asked for", _warning(part, main, types, listed), shares)
        if part in self.pinned:
            return FormatDecision(part, main, f"default for weights in {listed}" if listed else "default", None, shares)
        how = "bit for bit" if exact else "nearest to"
        return FormatDecision(part, main, f"{how} the file's {listed}", None, shares)


def choose_formats(
    choice: FormatChoice, default: ModelFormats, model: PreTrainedModel, source: WeightSource
) -> MatrixFormats:
    """A part that is plain floats in the checkpoint takes the default. Otherwise each matrix follows its own blocks."""
    parts = _stored_types(model, source)
    asked = {part: getattr(choice, part) for part in PARTS if getattr(choice, part) is not None}
    plain = [part for part, types in parts.items() if not any(kind in _FORMAT_OF for kind in types.values())]
    pinned = {part: getattr(default, part) for part in plain} | asked
    return MatrixFormats(pinned, asked.keys(), {name: kind for types in parts.values() for name, kind in types.items()})


def _stored_types(model: PreTrainedModel, source: WeightSource) -> dict[str, dict[str, str]]:
    """For each part the stored type of each of its matrices."""
    names = first_names(model)
    output_layer: Callable[[], torch.nn.Module | None] = model.get_output_embeddings
    head = output_layer()
    types: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for module_name, module in model.named_modules():
        part = "embedding" if isinstance(module, torch.nn.Embedding) else "lm_head" if module is head else "linear"
        for key, weight in module.named_parameters(recurse=False):
            name = names[f"{module_name}.{key}" if module_name else key]
            stored = source.stored_type(name) if weight.ndim > 1 else None
            if stored is not None:
                types[part][name] = stored
    return types


def keeps(stored: str, format_name: str) -> bool:
    """Whether a format has the integers or floats of a type of the checkpoint as they are."""
    return (stored, format_name) in _EXACT or _KEPT.get(stored) == format_name


def _finest(formats: list[str]) -> str:
    return max(formats, key=_FINER.index)


def _warning(part: str, asked: str, types: Counter[str], listed: str) -> str | None:
    """Coarse blocks whose grid is not that of another coarse format lose far more than plain weights do."""
    coarse = [name for name in types if name in _FORMAT_OF and name != "Q8_0"]
    if asked not in FOUR_BIT or all(keeps(name, asked) for name in coarse):
        return None
    followed = ", ".join(dict.fromkeys(_FORMAT_OF[name] for name in coarse))
    twice = f"{part} {asked} quantises the file's {listed} a second time, which costs quality"
    return f"{twice}; {followed} follows the file"
