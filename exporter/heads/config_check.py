"""Whether a head's configuration is about the tensors beside it: each contradiction is named with both values.

A head that drafts with the wrong layers, sizes or streams still runs; it only guesses badly, and looks like a bad head.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, TypeGuard

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .checkpoint import HeadCheckpoint

_OTHER_DRAFTERS = ("peagle", "dflash", "dspark", "hydra", "hass", "eagle2speculator")
_GENERATION = re.compile(r"eagle-?_?(\d+)")
_KIND_OF_GENERATION = {1: "eagle", 2: "eagle", 3: "eagle3"}
_KIND_OF_WORD = {"medusa": "medusa", "mlpspeculator": "mlp_speculator", "mlp_speculator": "mlp_speculator"}
_COUNTS = (
    "hidden_size",
    "target_hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "draft_vocab_size",
    "max_position_embeddings",
    "medusa_num_heads",
    "n_predict",
    "emb_dim",
)
_FROM_ZERO = ("medusa_num_layers", "inner_dim", "num_nextn_predict_layers")  # 0 has a meaning
_LISTS = ("stream_taps", "eagle_aux_hidden_state_layer_ids")
_POSITIVE = ("rms_norm_eps", "rope_theta")
_MOST = 1 << 24
_AXES = (1, 2)  # of every tensor of every kind of head
_DEFAULT_TAPS = 3


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
    for key, said, tensor_name, found in _sizes(checkpoint):
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
        if value is not None and not (_is_whole(value) and least <= value <= _MOST):
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
            if value is not None and not (isinstance(value, list) and all(map(_is_whole, value))):
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
                f"{checkpoint.id}: config.json names {name!r}, a kind of head that is not supported; Medusa heads, MLP "
                "speculators, EAGLE heads of generations 1 to 3 and MTP layers are"
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


def _sizes(checkpoint: HeadCheckpoint) -> Iterator[tuple[str, int, str, int]]:
    """What the configuration says, and what a tensor says of the same: key, value, tensor, value."""
    if checkpoint.kind == "medusa":
        yield from _medusa_sizes(checkpoint)
    elif checkpoint.kind == "mlp_speculator":
        yield from _speculator_sizes(checkpoint)
    elif checkpoint.kind == "mtp":
        yield from _mtp_sizes(checkpoint)
    else:
        yield from _eagle_sizes(checkpoint)


def _medusa_sizes(checkpoint: HeadCheckpoint) -> Iterator[tuple[str, int, str, int]]:
    blocks = re.compile(r"(\d+)\.(\d+)\.linear\.weight")
    found = [(match, name) for name in checkpoint.tensors if (match := blocks.fullmatch(name))]
    last = max(found, key=lambda item: (int(item[0][1]), int(item[0][2])))
    for key, group in (("medusa_num_heads", 1), ("medusa_num_layers", 2)):
        count = max(int(match[group]) for match, _ in found) + 1
        yield from _compared(checkpoint, key, last[1], count)
    hidden = checkpoint.tensors[last[1]].shape[0]
    yield from _compared(checkpoint, "hidden_size", last[1], int(hidden))


def _speculator_sizes(checkpoint: HeadCheckpoint) -> Iterator[tuple[str, int, str, int]]:
    yield from _rows(checkpoint, "vocab_size", "emb.0.weight")
    if checkpoint.config.get("inner_dim"):  # 0: the hidden size
        yield from _rows(checkpoint, "inner_dim", "proj.0.weight")
    yield from _columns(checkpoint, "emb_dim", "proj.0.weight")
    stages = [int(match[1]) for name in checkpoint.tensors if (match := re.fullmatch(r"emb\.(\d+)\.weight", name))]
    if not checkpoint.config.get("tie_weights"):  # tied ones may hold the first alone
        yield from _compared(checkpoint, "n_predict", f"emb.{max(stages)}.weight", max(stages) + 1)


def _mtp_sizes(checkpoint: HeadCheckpoint) -> Iterator[tuple[str, int, str, int]]:
    names = sorted(checkpoint.tensors)
    numbered = [(int(match[1]), name) for name in names if (match := re.match(r"model\.layers\.(\d+)\.", name))]
    if numbered:  # the first one comes after the target's last layer
        first, name = min(numbered)
        yield from _compared(checkpoint, "num_hidden_layers", name, first)
    for name in names:
        yield from _layer_size(checkpoint, name, name.partition("self_attn.")[2] or name.partition("mlp.")[2])


def _eagle_sizes(checkpoint: HeadCheckpoint) -> Iterator[tuple[str, int, str, int]]:
    is_third = checkpoint.kind == "eagle3"
    yield from _rows(checkpoint, "hidden_size", "fc.weight")
    yield from _rows(checkpoint, "vocab_size", "embed_tokens.weight")
    if is_third:
        yield from _rows(checkpoint, "draft_vocab_size", "lm_head.weight")
        yield from _taps(checkpoint)
    for name in sorted(checkpoint.tensors):
        if name.startswith("midlayer." if is_third else "layers.0."):
            yield from _layer_size(checkpoint, name, name.partition("self_attn.")[2] or name.partition("mlp.")[2])


def _taps(checkpoint: HeadCheckpoint) -> Iterator[tuple[str, int, str, int]]:
    fc, config = checkpoint.tensors.get("fc.weight"), checkpoint.config
    width = config.get("target_hidden_size")
    nested = config.get("eagle_config") or {}
    named = nested.get(_LISTS[1]) or config.get(_LISTS[1])
    if fc is not None and fc.ndim == len(_AXES) and width:
        count = len(named) if named else _DEFAULT_TAPS
        yield f"{count} streams of target_hidden_size {width}, in columns", count * width, "fc.weight", int(fc.shape[1])


def _layer_size(checkpoint: HeadCheckpoint, name: str, part: str) -> Iterator[tuple[str, int, str, int]]:
    """A tensor of a decoder layer; part: its name within attention or MLP."""
    config = checkpoint.config
    if part == "gate_proj.weight":
        yield from _rows(checkpoint, "intermediate_size", name)
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if not (_is_whole(heads) and _is_whole(hidden)):
        return
    size = config.get("head_dim") or hidden // heads
    key = {
        "q_proj.weight": ("num_attention_heads", heads),
        "k_proj.weight": ("num_key_value_heads", config.get("num_key_value_heads") or heads),
    }.get(part)
    if key is not None and (checkpoint.kind, part) != ("mtp", "q_proj.weight"):  # it may have an output gate
        rows = int(checkpoint.tensors[name].shape[0])
        yield f"{key[0]} * head_dim", key[1] * size, name, rows
    if part in ("q_norm.weight", "k_norm.weight"):
        yield "head_dim", size, name, int(checkpoint.tensors[name].shape[0])


def _rows(checkpoint: HeadCheckpoint, key: str, name: str) -> Iterator[tuple[str, int, str, int]]:
    if name in checkpoint.tensors:
        yield from _compared(checkpoint, key, name, int(checkpoint.tensors[name].shape[0]))


def _columns(checkpoint: HeadCheckpoint, key: str, name: str) -> Iterator[tuple[str, int, str, int]]:
    if name in checkpoint.tensors and checkpoint.tensors[name].ndim == len(_AXES):
        yield from _compared(checkpoint, key, name, int(checkpoint.tensors[name].shape[1]))


def _compared(checkpoint: HeadCheckpoint, key: str, name: str, found: int) -> Iterator[tuple[str, int, str, int]]:
    if checkpoint.config.get(key) is not None:
        yield key, checkpoint.config[key], name, found


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
