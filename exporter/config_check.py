"""Whether a configuration describes one causal language model, before transformers builds anything of it.

Knows nothing about tensors: `checkpoint_check` compares these with the model that the configuration makes.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from .config_numbers import check_numbers
from .errors import CheckpointError, UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from transformers import PretrainedConfig

_QUANTISED_BY = {  # files that quantising tools leave
    "quantize_config.json": "GPTQ",
    "quant_config.json": "AWQ",
}
_MODELOPT = "hf_quant_config.json"  # says what the quantization_config of later versions of ModelOpt says
QUANTISED_KEYS = ("quantization_config", "compression_config")  # the second of old compressed-tensors
_NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
_MOST = {  # of the counts in a configuration; far above every model, and small enough to try
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 18,
    "intermediate_size": 1 << 20,
    "num_hidden_layers": 1 << 12,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "num_kv_heads": 1 << 12,  # Falcon's name for them
    "head_dim": 1 << 12,
    "max_position_embeddings": 1 << 24,
    "sliding_window": 1 << 40,
}
_SPELLED = {kind: {"hidden_size": "n_embed"} for kind in ("bloom", "falcon")}  # which their classes read by themselves
_LEFT_OUT = {"falcon": ("max_position_embeddings",)}  # of published files, which mean their class's default
POSITIONS = ("n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")  # other names of the most
_ADAPTER = "adapter_config.json"


def read_config_json(folder: Path) -> dict[str, Any]:
    """What a folder's config.json says.

    Raises:
        CheckpointError: no such file, no JSON object, a number that is none, or an adapter alone.
    """
    path = folder / "config.json"
    if not path.exists():
        if (folder / _ADAPTER).is_file():
            raise CheckpointError(_adapter_message(folder))
        raise CheckpointError(f"{folder} has no readable model configuration: it has no config.json")
    found = _json_object(path)
    for key, value in _numbers(found):
        if not math.isfinite(value):
            raise CheckpointError(f"{path} has {key} = {value}, which is not a number")
    return found


def quantisation(found: Mapping[str, Any], folder: Path) -> dict[str, Any] | None:
    """What a folder's config.json says about how its matrices are quantised; None: they are plain.

    Raises:
        UnsupportedModelError: that is no object, or only a file of the tool that quantised them says it.
    """
    if found.get("quantization"):
        raise _already_quantised(folder, f"by MLX: quantization is {found['quantization']!r} in its config.json")
    for part in (found, found.get("text_config")):
        for key in QUANTISED_KEYS:
            if isinstance(part, dict) and part.get(key):
                if not isinstance(part[key], dict):
                    raise _already_quantised(folder, f"{key} is {part[key]!r}")
                return dict(part[key])
    if (folder / _MODELOPT).is_file():
        return {"quant_method": "modelopt", **(_json_object(folder / _MODELOPT).get("quantization") or {})}
    for file, name in _QUANTISED_BY.items():
        if (folder / file).is_file():
            raise _already_quantised(folder, f"{name}: {file}, without a quantization_config in its config.json")
    return None


def _already_quantised(folder: Path, how: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{folder} is already quantised ({how}); export the checkpoint that it was made from, or a GGUF file"
    )


def check_named(found: Mapping[str, Any], config: PretrainedConfig, where: str) -> None:
    """Refuses a config.json that leaves out what transformers would put its own default for.

    Raises:
        CheckpointError: naming the key.
    """
    aliases: Mapping[str, str] = getattr(type(config), "attribute_map", {})
    for name in (item for item in _NEEDED if item not in _LEFT_OUT.get(config.model_type, ())):
        spellings = {name, aliases.get(name, name), *(other for other, own in aliases.items() if own == name)}
        spellings.add(_SPELLED.get(config.model_type, {}).get(name, name))
        if name == "max_position_embeddings" and not any(hasattr(type(config), item) for item in spellings):
            spellings = {item for item in POSITIONS if hasattr(type(config), item)}  # none: it needs no such number
        if spellings and all(found.get(spelling) is None for spelling in spellings):
            raise CheckpointError(f"{where} has no {name} in its config.json; copy it from the model's original")
    new, old = found.get("rope_parameters"), found.get("rope_scaling")
    if new and old and new != old:
        raise CheckpointError(f"{where} has rope_parameters = {new} and rope_scaling = {old}; leave one out")
    theta, read = found.get("rope_theta"), (getattr(config, "rope_parameters", None) or {}).get("rope_theta")
    if theta is not None and read is not None and theta != read:
        raise CheckpointError(f"{where} has rope_theta = {theta!r} and {read!r} in its rope parameters; leave one out")


def size_of(config: PretrainedConfig, name: str) -> Any:
    """A size of a configuration: the largest one, where it states sizes for single layers; None: it has none."""
    if name in (getattr(config, "per_layer_attributes", None) or ()):
        return max(getattr(layer, name) for layer in config.per_layer_config)
    return getattr(config, name, None)


def check_values(config: PretrainedConfig, where: str) -> None:
    """Refuses sizes outside their range, sizes that do not divide, and models that are not one decoder.

    Raises:
        CheckpointError: naming the key and its value.
        UnsupportedModelError: an encoder-decoder.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{where} is an encoder-decoder ({config.model_type!r}); decoders are supported")
    for name, most in _MOST.items():
        value = size_of(config, name)
        if value is None and name not in _NEEDED:
            continue
        for size in value if name == "intermediate_size" and isinstance(value, list) else [value]:  # one a layer
            if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= most:
                raise CheckpointError(f"{where} has {name} = {value!r}; it must be a whole number in 1..{most}")
    heads = config.num_attention_heads
    for name in ("num_key_value_heads", "num_kv_heads"):
        kv_heads = size_of(config, name)
        if kv_heads is not None and heads % kv_heads:
            raise CheckpointError(
                f"{where} has num_attention_heads = {heads} and {name} = {kv_heads}, which does not divide it"
            )
    if size_of(config, "head_dim") is None and config.hidden_size % heads:
        raise CheckpointError(
            f"{where} has hidden_size = {config.hidden_size} and num_attention_heads = {heads}, which does not divide "
            "it, and no head_dim"
        )
    check_numbers(config, where)


def beside_adapter(folder: Path) -> str | None:
    """What is wrong where an adapter lies in the folder of a whole model; None if there is none."""
    if (folder / _ADAPTER).is_file() and (folder / "config.json").is_file():
        return (
            f"{folder} has an adapter ({_ADAPTER}) beside its model, which is not merged into it (--adapter {folder} "
            "merges it)"
        )
    return None


def _adapter_message(folder: Path) -> str:
    adapter = _json_object(folder / _ADAPTER)
    kind, base = adapter.get("peft_type", "LoRA"), adapter.get("base_model_name_or_path") or "its base model"
    return f"{folder} is an adapter alone ({kind}): export its base, {base}, with --adapter {folder} (adapters=)"


def _json_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.parent} has no readable model configuration: {path.name}: {error}") from error
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise CheckpointError(f"{path.parent} has no readable model configuration: {path.name} is {kind}, no object")
    return found


def _numbers(value: object, key: str = "") -> Iterator[tuple[str, float]]:
    """Every float in a JSON value, with the path to it."""
    if isinstance(value, float):
        yield key, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from _numbers(item, f"{key}.{name}" if key else str(name))
