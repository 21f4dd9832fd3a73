"""A GGUF file's metadata as a configuration of transformers, by the row of its family.

Each key of the file's architecture is read, or known to change nothing; any other is refused by name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from transformers import CONFIG_MAPPING, PretrainedConfig

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

from .families import ARCHITECTURES, FAMILIES, SCALES_BY_POSITION, WINDOW
from .gemma import OWN_VALUES
from .rope import ROPE_KEYS, rope_parameters
from .tokenizer import stop_ids

if TYPE_CHECKING:
    from .families import Family
    from .file import GgufFile

_NAMES = {  # key behind the architecture -> name in the configuration
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
_KV_HEADS, _KEY_LENGTH, _VALUE_LENGTH = "attention.head_count_kv", "attention.key_length", "attention.value_length"
_PATTERN, _LOCAL_BASE, _ROTATED = "attention.sliding_window_pattern", "rope.freq_base_swa", "rope.dimension_count"
_READ = {*_NAMES, *ROPE_KEYS, _KV_HEADS, _KEY_LENGTH, _VALUE_LENGTH, _ROTATED}
_HARMLESS = {"vocab_size", "tensor_data_layout"}  # the embedding's rows are the vocabulary
_FULL, _SLIDING = "full_attention", "sliding_attention"
_TOKEN_IDS = {"bos_token_id": "tokenizer.ggml.bos_token_id", "pad_token_id": "tokenizer.ggml.padding_token_id"}
# Gemma's queries are divided by the root of another number than the head size in the largest models alone.
_LAYERS_OF_THE_LARGEST = {"gemma2": 46, "gemma3": 62}


def read_config(file: GgufFile) -> PretrainedConfig:
    """The configuration of the model in a GGUF file.

    Raises:
        CheckpointError: a key is missing, or has another value than a model of this kind can have.
        UnsupportedModelError: what the exporter cannot express, such as experts, or a key that it does not know.
    """
    if file.architecture not in FAMILIES:
        raise UnsupportedModelError(
            f"{file.path} is a GGUF file of the architecture {file.architecture!r}; those of "
            f"{', '.join(ARCHITECTURES)} are read. Export the folder that it was made from"
        )
    family = FAMILIES[file.architecture]
    _refuse_unsupported(file, family)
    kind = next((other for key, other in family.variants.items() if _stated(file, key)), family.model_type)
    values = _values(file, family, CONFIG_MAPPING[kind]())
    if file.architecture in OWN_VALUES:
        values = OWN_VALUES[file.architecture](file, values)
    if family.is_rotated and "rope_parameters" not in values:
        values["rope_parameters"] = _rotary(file, family, values)
    config: PretrainedConfig = CONFIG_MAPPING[kind](**values)
    return config


def _refuse_unsupported(file: GgufFile, family: Family) -> None:
    prefix = f"{file.architecture}."
    if int(file.fields.get(f"{prefix}expert_count", 0)):
        raise UnsupportedModelError(f"{file.path} is a mixture of experts, which this exporter cannot express")
    for key in ("attention.head_count", _KV_HEADS, "feed_forward_length"):
        value = file.fields.get(prefix + key)
        if isinstance(value, list) and len(set(value)) > 1 and key not in family.by_layer:
            raise UnsupportedModelError(f"{file.path} has layers with different {key}; they must all have the same")
    lengths = {file.fields.get(prefix + key) for key in (_KEY_LENGTH, _VALUE_LENGTH)} - {None}
    if len(lengths) > 1:
        raise UnsupportedModelError(f"{file.path} has keys and values of different sizes; they must have the same")
    for key, expected in family.stated_once.items():
        value = file.fields.get(prefix + key, expected)
        if value != expected and not (isinstance(value, float) and math.isclose(value, expected, rel_tol=1e-6)):
            raise UnsupportedModelError(f"{file.path} has {prefix}{key} = {value!r}; supported is {expected!r}")
    _refuse_unknown(file, family)


def _refuse_unknown(file: GgufFile, family: Family) -> None:
    known = {*_READ, *_HARMLESS, *family.epsilon, *family.required, *family.optional, *family.stated_once}
    known |= {*family.ignored, *family.variants, *family.own}
    if family.has_window:
        known.add(WINDOW)
    if family.window_period is not None:
        known |= {WINDOW, _PATTERN, _LOCAL_BASE}
    prefix = f"{file.architecture}."
    for name, value in file.fields.items():
        is_nothing = isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0
        if name.startswith(prefix) and name.removeprefix(prefix) not in known and not is_nothing:
            raise UnsupportedModelError(
                f"{file.path} has {name} = {value!r}, which is not known of this architecture and may change what the "
                "model computes; export the folder that it was made from"
            )


def _stated(file: GgufFile, key: str) -> Any:
    """A field of the architecture; None where it is missing. Where it is given for each layer, they all have it."""
    value = file.fields.get(f"{file.architecture}.{key}")
    return value[0] if isinstance(value, list) and value else value


def _number(file: GgufFile, key: str) -> Any:
    file.field(f"{file.architecture}.{key}")
    return _stated(file, key)


def _values(file: GgufFile, family: Family, default: PretrainedConfig) -> dict[str, Any]:
    """What the file says, under the configuration's names, but for the rotation."""
    values = {name: _number(file, key) for key, name in _NAMES.items()}
    heads, hidden = values["num_attention_heads"], values["hidden_size"]
    sizes = {"num_key_value_heads": _stated(file, _KV_HEADS) or heads}
    sizes["head_dim"] = _stated(file, _KEY_LENGTH) or hidden // heads
    implied = {"num_key_value_heads": heads, "head_dim": hidden // heads}
    values |= {name: size for name, size in sizes.items() if _has(default, name) or size != implied[name]}
    values |= {name: _number(file, key) for key, name in (*family.epsilon.items(), *family.required.items())}
    values |= family.constants
    values |= _optional(file, family)
    values |= {flag: _is_present(file, tensor) for flag, tensor in family.if_present.items()}
    values |= _windows(file, family, values["num_hidden_layers"])
    values |= _scales(file, sizes["head_dim"], hidden // heads)
    values["vocab_size"] = _embedding_rows(file)
    values["tie_word_embeddings"] = "output.weight" not in file.tensors
    values["eos_token_id"] = list(stop_ids(file)) or None
    return values | {name: file.fields.get(key) for name, key in _TOKEN_IDS.items()}


def _has(config: PretrainedConfig, name: str) -> bool:
    """Whether a configuration has a value of its own; transformers raises for one that may differ between layers."""
    return name in (getattr(config, "per_layer_attributes", None) or ()) or hasattr(config, name)


def _optional(file: GgufFile, family: Family) -> dict[str, Any]:
    """What of it the file states; a name with a dot is of a configuration inside the configuration."""
    found: dict[str, Any] = {}
    for key, name in family.optional.items():
        value = _stated(file, key)
        outer, _, inner = name.partition(".")
        if value is not None:
            found[outer] = {inner: value} if inner else value
    return found


def _is_present(file: GgufFile, tensor: str) -> bool:
    """In the first layer, on its own or as a part of one for query, key and value."""
    names = (tensor, tensor.replace("attn_q.", "attn_qkv."))
    return any(f"blk.0.{name}" in file.tensors for name in names)


def _windows(file: GgufFile, family: Family, num_layers: int) -> dict[str, Any]:
    window = _stated(file, WINDOW) or None
    if family.has_window:
        return {"sliding_window": window}
    if family.window_period is None or (window is None and family.variants.get(WINDOW)):
        return {}
    pattern = file.fields.get(f"{file.architecture}.{_PATTERN}", family.window_period)
    if isinstance(pattern, list):
        has_window = [bool(item) for item in pattern]
    else:
        has_window = [pattern == 0 or index % pattern < pattern - 1 for index in range(num_layers)]
    if len(has_window) != num_layers:
        raise CheckpointError(f"{file.path} has {_PATTERN} of {len(has_window)} layers; it has {num_layers}")
    kinds = [_SLIDING if window and item else _FULL for item in has_window]
    return {"sliding_window": window, "layer_types": kinds}


def _scales(file: GgufFile, head_dim: int, width: int) -> dict[str, Any]:
    """By what the scores of attention are divided, in families that have a name of their own for it."""
    if file.architecture in _LAYERS_OF_THE_LARGEST:
        is_largest = _stated(file, "block_count") == _LAYERS_OF_THE_LARGEST[file.architecture]
        return {"query_pre_attn_scalar": width if is_largest else head_dim}
    if file.architecture == "granite" and not _stated(file, "attention.scale"):
        return {"attention_multiplier": head_dim**-0.5}
    return {}


def _embedding_rows(file: GgufFile) -> int:
    if "token_embd.weight" not in file.tensors:
        raise CheckpointError(f"{file.path} has no tensor token_embd.weight; is the file complete?")
    return file.tensors["token_embd.weight"].shape[0]


def _rotary(file: GgufFile, family: Family, values: dict[str, Any]) -> dict[str, Any]:
    """The rope parameters, or those of each kind of layer."""
    head_dim = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
    width = int(_stated(file, _ROTATED) or head_dim)
    factor = width / head_dim
    if width != head_dim and not (family.is_partial and int(head_dim * factor) == width):
        raise UnsupportedModelError(f"{file.path} rotates {width} of {head_dim} dimensions; it must be {head_dim}")
    found = rope_parameters(file, width)
    if family.is_partial:
        found["partial_rotary_factor"] = factor
    if SCALES_BY_POSITION in family.variants and (scale := _stated(file, SCALES_BY_POSITION)) is not None:
        found["llama_4_scaling_beta"] = scale
    base = float(_stated(file, _LOCAL_BASE) or family.local_base or found["rope_theta"])
    if family.local_base is not None and "layer_types" in values:
        return {_FULL: found, _SLIDING: {"rope_type": "default", "rope_theta": base}}
    if base != found["rope_theta"]:
        raise UnsupportedModelError(f"{file.path} has {_LOCAL_BASE} = {base}; it must be {found['rope_theta']}")
    return found
