"""Writes a random checkpoint of a known shape, for benchmarks: python samples/bench_shapes.py SHAPE PLACE [BYTES].

Speed depends on shapes, not on values. PLACE is a folder for safetensors in float16, cut into files of at most BYTES
(5 GB if left out), or a name ending in .gguf for the mixture Q4_K_M. Tensors are made and written one at a time; the
tokenizer has one token a byte, the rest of the vocabulary is padding.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PretrainedConfig, PreTrainedTokenizerFast, Qwen2Config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Array = np.ndarray[Any, np.dtype[Any]]
Shapes = dict[str, tuple[int, ...]]
_SHAPES = {  # kind, hidden, layers, heads, key/value heads, feed-forward, vocabulary
    "tinyllama-1.1b": (LlamaConfig, 2048, 22, 32, 4, 5632, 32000),
    "llama-2-7b": (LlamaConfig, 4096, 32, 32, 32, 11008, 32000),
    "draft-0.1b": (LlamaConfig, 768, 12, 12, 12, 2048, 32000),
    "qwen2.5-7b": (Qwen2Config, 3584, 28, 28, 4, 18944, 152064),
    "qwen2.5-1.5b": (Qwen2Config, 1536, 28, 12, 2, 8960, 151936),
    "qwen2.5-0.5b": (Qwen2Config, 896, 24, 14, 2, 4864, 151936),
}
_TIED = 2048  # hidden size below which the shapes of Qwen have one matrix for embedding and output
_MAX_POSITIONS = 4096
_SEED = 1
_NUM_RANDOM = 1 << 24  # numbers that tensors take stretches of
_SHARD_BYTES = 5_000_000_000
_Q4_K, _Q6_K, _Q5_0 = (getattr(gguf.GGMLQuantizationType, name) for name in ("Q4_K", "Q6_K", "Q5_0"))
_SCALES = {  # of a kind of blocks: the bytes at which each has f16 numbers, and these for codes of deviation one
    _Q4_K: {0: 1 / 258, 2: 7.5 / 258},  # the second takes the mean away
    _Q6_K: {208: 1 / 1370},
    _Q5_0: {0: 1 / 9},
}


def main(shape: str, place: Path, shard_bytes: int = _SHARD_BYTES) -> None:
    """Writes a checkpoint of `shape`: a folder with config, weights and tokenizer, or a GGUF file."""
    config = shape_config(shape)
    if place.suffix == ".gguf":
        size = write_gguf(config, place)
    else:
        place.mkdir(parents=True, exist_ok=True)
        config.save_pretrained(place)
        write_tokenizer(place)
        size = write_weights(tensor_shapes(config), place, shard_bytes)
    print(f"{place}: {shape}, {size / 1e9:.2f} GB")


def shape_config(shape: str) -> PretrainedConfig:
    """The configuration of a shape."""
    kind, hidden, layers, heads, kv_heads, feed_forward, vocabulary = _SHAPES[shape]
    return kind(
        architectures=[kind.__name__.replace("Config", "ForCausalLM")],
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=_MAX_POSITIONS,
        tie_word_embeddings=kind is Qwen2Config and hidden < _TIED,
        bos_token_id=256,
        eos_token_id=257,
    )


def tensor_shapes(config: PretrainedConfig) -> Shapes:
    """Names and shapes of the checkpoint."""
    hidden, feed_forward = config.hidden_size, config.intermediate_size
    kv = config.num_key_value_heads * (hidden // config.num_attention_heads)
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_hidden_layers):
        parts = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (feed_forward, hidden),
            "mlp.up_proj": (feed_forward, hidden),
            "mlp.down_proj": (hidden, feed_forward),
        }
        shapes.update({f"model.layers.{layer}.{part}.weight": shape for part, shape in parts.items()})
        for part in "qkv" if config.model_type == "qwen2" else "":
            shapes[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = parts[f"self_attn.{part}_proj"][:1]
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def write_weights(shapes: Shapes, folder: Path, shard_bytes: int = _SHARD_BYTES) -> int:
    """Streams safetensors (8 bytes of header length, JSON header, data), one file or several, and returns the bytes."""
    shards: list[Shapes] = [{}]
    for name, shape in shapes.items():
        if shards[-1] and 2 * sum(map(math.prod, [*shards[-1].values(), shape])) > shard_bytes:
            shards.append({})
        shards[-1][name] = shape
    values, total, places = _Random(), 0, {}
    for number, shard in enumerate(shards, 1):
        name = "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        places.update(dict.fromkeys(shard, name))
        total += _write_shard(shard, folder / name, values)
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return total


def _write_shard(shapes: Shapes, path: Path, values: _Random) -> int:
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            for part in [np.ones(shape, np.float16)] if len(shape) == 1 else values.floats(shape):
                file.write(part.data)
        return file.tell()


class _Random:
    """Normal numbers of which each tensor takes stretches that begin anywhere."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(_SEED)
        self._numbers = self._generator.standard_normal(_NUM_RANDOM, dtype=np.float32)

    def floats(self, shape: tuple[int, ...]) -> Iterator[Array]:
        """A matrix in float16, in pieces."""
        scaled = (self._numbers * np.float32(shape[1] ** -0.5)).astype(np.float16)
        left = math.prod(shape)
        while left:
            start = int(self._generator.integers(_NUM_RANDOM))
            piece = scaled[start : start + left]
            left -= piece.size
            yield piece

    def blocks(self, shape: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> Array:
        """A matrix of blocks, u8 [rows, bytes]."""
        columns, size = gguf.GGML_QUANT_SIZES[kind]
        found = self._generator.integers(256, size=(shape[0], shape[1] // columns, size), dtype=np.uint8)
        for place, value in _SCALES[kind].items():
            found[:, :, place : place + 2] = np.frombuffer(np.float16(value * shape[1] ** -0.5).tobytes(), np.uint8)
        return found.reshape(shape[0], -1)


def write_gguf(config: PretrainedConfig, path: Path) -> int:
    """Writes a file in the mixture Q4_K_M, but for its tokenizer, and returns its bytes."""
    writer = gguf.GGUFWriter(path, config.model_type)
    for key, value in _fields(config).items():
        kinds: Mapping[type, Any] = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        kinds.get(type(value), writer.add_array)(key, value)
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == config.model_type)
    table = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    stored = {}
    for name, shape in tensor_shapes(config).items():
        stem, _, suffix = name.rpartition(".")
        stored[f"{table.get_name(stem)}.{suffix}"] = shape, _kind(name, config) if len(shape) > 1 else None
    for name, (shape, blocks) in stored.items():
        columns, block_bytes = (1, 4) if blocks is None else gguf.GGML_QUANT_SIZES[blocks]
        size = math.prod(shape) // columns * block_bytes
        shape_of_bytes = shape if blocks is None else (shape[0], size // shape[0])
        writer.add_tensor_info(name, shape_of_bytes, np.dtype("f4" if blocks is None else "u1"), size, blocks)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    values = _Random()
    for shape, blocks in stored.values():
        writer.write_tensor_data(np.ones(shape, np.float32) if blocks is None else values.blocks(shape, blocks))
    writer.close()
    return path.stat().st_size


def _kind(name: str, config: PretrainedConfig) -> gguf.GGMLQuantizationType:
    """As llama.cpp mixes them: finer for the output and for half of two kinds; short blocks for odd columns."""
    in_features = config.intermediate_size if "down_proj" in name else config.hidden_size
    if in_features % gguf.GGML_QUANT_SIZES[_Q4_K][0]:
        return _Q5_0
    if "layers" not in name:
        return _Q6_K if "lm_head" in name or config.tie_word_embeddings else _Q4_K
    is_every_third = int(name.split(".")[2]) % 3 == 0
    return _Q6_K if is_every_third and ("v_proj" in name or "down_proj" in name) else _Q4_K


def _fields(config: PretrainedConfig) -> dict[str, Any]:
    kind, head_dim = config.model_type, config.hidden_size // config.num_attention_heads
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {
        f"{kind}.vocab_size": config.vocab_size,
        f"{kind}.context_length": config.max_position_embeddings,
        f"{kind}.embedding_length": config.hidden_size,
        f"{kind}.block_count": config.num_hidden_layers,
        f"{kind}.feed_forward_length": config.intermediate_size,
        f"{kind}.attention.head_count": config.num_attention_heads,
        f"{kind}.attention.head_count_kv": config.num_key_value_heads,
        f"{kind}.attention.key_length": head_dim,
        f"{kind}.attention.value_length": head_dim,
        f"{kind}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{kind}.rope.dimension_count": head_dim,
        f"{kind}.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*alphabet, "<s>", "</s>", "th"],
        "tokenizer.ggml.token_type": [1] * len(alphabet) + [3, 3, 1],
        "tokenizer.ggml.merges": ["t h"],  # a file has at least one
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
    }


def write_tokenizer(folder: Path) -> None:
    """One token a byte, then <s> (256) and </s> (257)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in _SHAPES:  # program, shape, place and bytes
        sys.exit(f"{__doc__}\nshapes: {', '.join(_SHAPES)}")
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
