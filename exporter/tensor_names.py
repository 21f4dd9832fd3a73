"""Names of a folder's tensors -> those of the model that transformers builds: older layouts, and parts of other models.

Knows renamings alone; a checkpoint whose tensors have to be joined or cut has other names than its model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, apply_renamings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers import PreTrainedModel

# Where the tensors of a language model are that is a part of another one, and what they are called alone.
_OF_TEXT = (
    ("model.language_model.lm_head.", "lm_head."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.model.", "model."),
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.", "model."),
    ("model.text_model.", "model."),
    ("lm_head.", "lm_head."),
)


def model_names(model: PreTrainedModel, stored: Iterable[str], *, is_text_part: bool) -> dict[str, str]:
    """Name in the model's state dict -> stored name, for all tensors that are not called so already.

    is_text_part: the folder has a model of several parts, of which this one is the text's.
    """
    renamings = [item for item in get_model_conversion_mapping(model) if isinstance(item, WeightRenaming)]
    expected = model.state_dict().keys()
    names = set(stored)
    found: dict[str, str] = {}
    for name in sorted(names):
        plain = text_name(name) if is_text_part else name
        if plain is None:
            continue
        candidates = {plain, apply_renamings(plain, renamings)}
        if not candidates & expected:
            candidates = {_across_prefix(candidate, model.base_model_prefix) for candidate in candidates}
        for candidate in (candidates & expected) - names:
            found.setdefault(candidate, name)
    return found


def _across_prefix(name: str, prefix: str) -> str:
    """With the prefix of a model's layers in front, or without: some are published as these layers alone (GPT-2)."""
    return name.removeprefix(f"{prefix}.") if name.startswith(f"{prefix}.") else f"{prefix}.{name}"


def text_name(stored: str) -> str | None:
    """What a tensor of a model of several parts is called in its language model alone; None: it is of another part."""
    for before, after in _OF_TEXT:
        if stored.startswith(before):
            return after + stored.removeprefix(before)
    is_plain = stored.startswith(("model.layers.", "model.embed_tokens.", "model.norm."))
    return stored if is_plain else None
