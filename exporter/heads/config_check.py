"""Whether a head's configuration is about the tensors beside it: each contradiction is named with both values.

A head that drafts with the wrong layers, sizes or streams still runs; it only guesses badly, and looks like a bad head.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

from . import eagle, target_state
from .config_sizes import is_whole
from .kinds import KINDS

if TYPE_CHECKING:
    from .checkpoint import HeadCheckpoint

_OTHER_DRAFTERS = ("peagle", "dflash", "dspark", "hydra", "hass", "eagle2speculator")
_GENERATION = re.compile(r"eagle-?_?(\d+)")
_KIND_OF_GENERATION = {1: "eagle", 2: "eagle", 3: "eagle3"}
_KIND_OF_WORD = {word: kind.name for kind in KINDS.values() for word in kind.words}
_COUNTS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    *(name for kind in KINDS.values() for name in kind.counts),
)
_FROM_ZERO = tuple(name for kind in KINDS.values() for name in kind.counts_from_zero)  # 0 has a meaning
_LISTS = (target_state.TAPS, eagle.TAPS)
_POSITIVE = ("rms_norm_eps", "rope_theta")
_MOST = 1 << 24
_TITLES = ", ".join(dict.fromkeys(kind.title for kind in KINDS.values()))
_AXES = (1, 2)  # of every tensor of every kind of head


def check_head(checkpoint: HeadCheckpoint) -> None:
    """Compares what config.json says with names and shapes of tensors.

    Raises:
        CheckpointError: a value that is none, or that the tensors contradict.
        UnsupportedModelError: a kind or generation of head that no reader knows.
    """
    _check_values(checkpoint)
    _check_named_kind(checkpoint)
    for name, tensor in checkpoint.tensors.items():
        if tensor.ndim not in _AXES:
            raise CheckpointError(f"{checkpoint.id}: tensor {name} has {tensor.ndim} axes; expected 1 or 2")
    for key, said, tensor_name, found in KINDS[checkpoint.kind].sizes(checkpoint):
        if said != found:
            raise CheckpointError(
                f"{checkpoint.id}: config.json has {key} = {said}, but by {tensor_name} it is {found}; "
                "one of them belongs to another head"
            )


def _check_values(checkpoint: HeadCheckpoint) -> None:
    config, where = checkpoint.config, checkpoint.id
    for key, value in config.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise CheckpointError(f"{where}: config.json has {key} = {value}, which is not a number")
    for key in (*_COUNTS, *_FROM_ZERO):
        value, least = config.get(key), 0 if key in _FROM_ZERO else 1
        if value is not None and not (is_whole(value) and least <= value <= _MOST):
            raise CheckpointError(
                f"{where}: config.json has {key} = {value!r}; it must be a whole number in {least}..{_MOST}"
            )
    for key in _POSITIVE:
        value = config.get(key)
        if value is not None and not (isinstance(value, (int, float)) and value is not True and value > 0):
            raise CheckpointError(f"{where}: config.json has {key} = {value!r}; it must be a number above 0")
    _check_lists(config, where)


def _check_lists(config: dict[str, Any], where: str) -> None:
    nested = config.get("eagle_config")
    if nested is not None and not isinstance(nested, dict):
        raise CheckpointError(f"{where}: config.json has eagle_config = {nested!r}, which is no object")
    for part in (config, nested or {}):
        for key in _LISTS:
            value = part.get(key)
            if value is not None and not (isinstance(value, list) and all(map(is_whole, value))):
                raise CheckpointError(f"{where}: config.json has {key} = {value!r}; it must be a list of layers")


def _check_named_kind(checkpoint: HeadCheckpoint) -> None:
    """What the configuration calls the head, where that is the name of a kind of head at all."""
    named = checkpoint.config.get("architectures") or []
    if not isinstance(named, list):
        raise CheckpointError(f"{checkpoint.id}: config.json has architectures = {named!r}; it must be a list")
    for name in [*named, checkpoint.config.get("model_type")]:
        text = str(name).lower()
        if any(word in text for word in _OTHER_DRAFTERS):
            raise UnsupportedModelError(
                f"{checkpoint.id}: config.json names {name!r}, a kind of head that is not supported; {_TITLES} are"
            )
        generation = _GENERATION.search(text)
        kind = next((kind for word, kind in _KIND_OF_WORD.items() if word in text), None)
        if generation is not None:
            kind = _KIND_OF_GENERATION.get(int(generation[1]))
            if kind is None:
                raise UnsupportedModelError(
                    f"{checkpoint.id}: config.json names {name!r}, a generation of EAGLE that is not supported (1 to 3)"
                )
        if kind is not None and kind != checkpoint.kind:
            raise CheckpointError(
                f"{checkpoint.id}: config.json names {name!r}, but its tensors are those of kind {checkpoint.kind!r}"
            )
