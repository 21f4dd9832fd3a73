"""Packs a small Llama draft (a folder with safetensors) into a GGUF: python samples/pack_draft.py DRAFT OUT.gguf.

Linear layers become Q8_0, the tied embedding Q4_0 with pilotfish's own scale search; `pilotfish export` takes both over
bit for bit. The file has no tokenizer: a draft uses its target's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np

from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.quantise import Quantised, quantise
from pilotfish.exporter.sources import SafetensorsSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TYPES = {"int4": gguf.GGMLQuantizationType.Q4_0, "int8": gguf.GGMLQuantizationType.Q8_0}


def main(checkpoint: Path, out: Path) -> None:
    """Writes `out` and prints its size."""
    config = load_checkpoint(str(checkpoint)).config
    source = SafetensorsSource(checkpoint)
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name(checkpoint.name)
    writer.add_license("apache-2.0")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_bos_token_id(config.bos_token_id)
    eos_ids = config.eos_token_id  # one, or a list: GGUF names the first
    writer.add_eos_token_id(eos_ids[0] if isinstance(eos_ids, list) else eos_ids)
    writer.add_pad_token_id(config.pad_token_id)

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name in source.names():
        stem = name.removesuffix(".weight")
        rows = source.read(name)
        module = stem.rpartition(".")[2]
        if module in heads:
            rows = adjacent_pairs(rows, heads[module])
        target = f"{names.get_name(stem)}.weight"
        if rows.ndim == 1:
            writer.add_tensor(target, rows)
        else:
            format_name = "int4" if module == "embed_tokens" else "int8"
            writer.add_tensor(target, blocks(quantise(rows, format_name), format_name), raw_dtype=_TYPES[format_name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB")


def adjacent_pairs(rows: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """GGUF's Llama rotates neighbouring rows of a head, the checkpoint rotates its halves."""
    halves = rows.reshape(num_heads, 2, -1, rows.shape[1])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def blocks(quantised: Quantised, format_name: str) -> NDArray[np.uint8]:
    """GGUF's blocks of 32 columns: f16 scale, then bytes (int8) or columns 0..15 in the low nibbles (int4)."""
    codes = quantised.codes.reshape(*quantised.scale.shape, 32)
    if format_name == "int4":
        unsigned = (codes + 8).astype(np.uint8)
        data = unsigned[..., :16] | (unsigned[..., 16:] << 4)
    else:
        data = codes.view(np.uint8)
    scale = quantised.scale[..., None].view(np.uint8)
    return np.concatenate([scale, data], axis=2).reshape(codes.shape[0], -1)


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004 - program, checkpoint, out
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
