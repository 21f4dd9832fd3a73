"""Writes a random checkpoint of a known shape, for benchmarks: python samples/bench_shapes.py SHAPE FOLDER.

Speed depends on shapes, not on values. Tensors are made and written one at a time, in float16; the tokenizer has one
token a byte, the rest of the vocabulary is padding. Then: pilotfish export FOLDER --no-parity --out BUNDLE
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

_SHAPES = {  # hidden, layers, heads, key/value heads, feed-forward, vocabulary
    "tinyllama-1.1b": (2048, 22, 32, 4, 5632, 32000),
    "llama-2-7b": (4096, 32, 32, 32, 11008, 32000),
    "draft-0.1b": (768, 12, 12, 12, 2048, 32000),
}
_MAX_POSITIONS = 4096
_SEED = 1


def main(shape: str, folder: Path) -> None:
    """Writes config, weights and tokenizer of `shape` into `folder`."""
    hidden, layers, heads, kv_heads, feed_forward, vocabulary = _SHAPES[shape]
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=_MAX_POSITIONS,
        tie_word_embeddings=False,
        bos_token_id=256,
        eos_token_id=257,
    )
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    write_tokenizer(folder)
    size = write_weights(tensor_shapes(config), folder / "model.safetensors")
    print(f"{folder}: {shape}, {size / 1e9:.2f} GB")


def tensor_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Llama checkpoint."""
    hidden, feed_forward = config.hidden_size, config.intermediate_size
    kv = config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
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
    shapes["model.norm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def write_weights(shapes: dict[str, tuple[int, ...]], path: Path) -> int:
    """Streams a safetensors file (8 bytes of header length, JSON header, data) and returns its bytes."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = np.random.default_rng(_SEED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            if len(shape) == 1:
                file.write(np.ones(shape, dtype=np.float16).data)
            else:
                rows = generator.standard_normal(shape, dtype=np.float32)
                rows *= shape[1] ** -0.5
                file.write(rows.astype(np.float16).data)
        return file.tell()


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
    if len(sys.argv) != 3 or sys.argv[1] not in _SHAPES:  # noqa: PLR2004 - program, shape, folder
        sys.exit(f"{__doc__}\nshapes: {', '.join(_SHAPES)}")
    main(sys.argv[1], Path(sys.argv[2]))
