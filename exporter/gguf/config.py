"""A GGUF file's metadata as a configuration of transformers.

Three architectures are read here. Others are read by transformers' own tables, which drop rope scaling, head sizes and
the number of rows of the embedding: those are read here for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, PretrainedConfig

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

from .rope import rope_parameters
from .tokenizer import stop_ids

if TYPE_CHECKING:
    from .file import GgufFile

OWN_ARCHITECTURES = ("llama", "qwen2", "qwen3")  # the names are transformers' too
_NAMES = {  # key behind the architecture -> name in the configuration
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
_ROTATED_FULLY = "full_attention"
_TOKEN_IDS = {"bos_token_id": "tokenizer.ggml.bos_token_id", "pad_token_id": "tokenizer.ggml.padding_token_id"}


def read_config(file: GgufFile) -> PretrainedConfig:
    """The configuration of the model in a GGUF file.

    Raises:
        CheckpointError: a key is missing, or has another value than a model of this kind can have.
        UnsupportedModelError: what the exporter cannot express, such as experts or rope factors of an unknown kind.
    """
    _refuse_unsupported(file)
    config = _own_config(file) if file.architecture in OWN_ARCHITECTURES else _config_of_transformers(file)
    config.vocab_size = _embedding_rows(file)
    config.tie_word_embeddings = "output.weight" not in file.tensors
    config.eos_token_id = list(stop_ids(file)) or None
    for name, key in _TOKEN_IDS.items():
        setattr(config, name, file.fields.get(key))
    _set_rotary(file, config)
    return config


def _refuse_unsupported(file: GgufFile) -> None:
    architecture = file.architecture
    if int(file.fields.get(f"{architecture}.expert_count", 0)):
        raise UnsupportedModelError(f"{file.path} is a mixture of experts, which this exporter cannot express")
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        value = file.fields.get(f"{architecture}.{key}")
        if isinstance(value, list) and len(set(value)) > 1:
            raise UnsupportedModelError(f"{file.path} has layers with different {key}; they must all have the same")
    lengths = {file.fields.get(f"{architecture}.attention.{kind}_length") for kind in ("key", "value")} - {None}
    if len(lengths) > 1:
        raise UnsupportedModelError(f"{file.path} has keys and values of different sizes; they must have the same")


def _number(file: GgufFile, key: str) -> Any:
    """A field of the architecture; where it is given for each layer, they all have the same."""
    value = file.field(f"{file.architecture}.{key}")
    return value[0] if isinstance(value, list) else value


def _own_config(file: GgufFile) -> PretrainedConfig:
    values = {name: _number(file, key) for key, name in _NAMES.items()}
    key_value_heads = f"{file.architecture}.attention.head_count_kv"
    values["num_key_value_heads"] = (
        _number(file, "attention.head_count_kv") if key_value_heads in file.fields else values["num_attention_heads"]
    )
    values["head_dim"] = file.fields.get(
        f"{file.architecture}.attention.key_length", values["hidden_size"] // values["num_attention_heads"]
    )
    if file.architecture == "llama":
        values["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
        values["mlp_bias"] = "blk.0.ffn_gate.bias" in file.tensors
    config: PretrainedConfig = AutoConfig.for_model(file.architecture, **values)
    return config


def _config_of_transformers(file: GgufFile) -> PretrainedConfig:
    first = file.parts[0]
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(str(first.parent), gguf_file=first.name)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"{file.path} has no readable model configuration: {reason}") from error
    return config


def _embedding_rows(file: GgufFile) -> int:
    if "token_embd.weight" not in file.tensors:
        raise CheckpointError(f"{file.path} has no tensor token_embd.weight; is the file complete?")
    return file.tensors["token_embd.weight"].shape[0]


def _set_rotary(file: GgufFile, config: PretrainedConfig) -> None:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    every = getattr(config, "rope_parameters", None) or {}
    given = every.get(_ROTATED_FULLY, every)  # a table for each kind of layer: the file's scaling is of full attention
    width = int(head_dim * given.get("partial_rotary_factor", 1.0))
    stated = int(file.fields.get(f"{file.architecture}.rope.dimension_count", width))
    if stated != width:
        raise UnsupportedModelError(f"{file.path} rotates {stated} of {head_dim} dimensions; it must be {width}")
    found = {**given, **rope_parameters(file, width)}
    config.rope_parameters = {**every, _ROTATED_FULLY: found} if _ROTATED_FULLY in every else found
