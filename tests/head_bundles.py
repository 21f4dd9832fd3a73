"""Bundles of a tiny target with a head that has a cache: random ones, and ones that often agree with their target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tiny_heads
import torch
from tiny_bundles import MAX_POSITIONS, save_checkpoint
from tiny_mtp import LAYOUTS, add_mtp
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, ModelFormats, export

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

Tensors = dict[str, torch.Tensor]
KINDS = ("eagle", "eagle3", *LAYOUTS)
_TAPS = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}  # of two layers
_F32 = ModelFormats("f32", "f32", "f32")
EXACT = ExportOptions(target=_F32, cache_dtype="f32", head_format="f32", parity=False)
LOW_BIT = ExportOptions(head_format="int8", parity=False)


def _drafted(vocab: int) -> tuple[int, ...]:
    """The ids that EAGLE-3 heads score."""
    return tuple(index for index in range(vocab) if index % 3)


def random_head(
    folder: Path, kind: str, tokenizer: Tokenizer, max_positions: int = MAX_POSITIONS
) -> tuple[Path, Path, Tensors, dict[str, Any]]:
    """A target, a random head for it (the target itself for a layer of its own), the head's tensors and config."""
    vocab = tokenizer.get_vocab_size()
    target = save_checkpoint(folder / "target", tokenizer, spread=0.5, max_positions=max_positions)
    if kind in LAYOUTS:
        return target, target, add_mtp(target, kind), {}
    if kind == "eagle":
        tensors, config = tiny_heads.eagle(vocab=vocab)
    else:
        tensors, config = tiny_heads.eagle3(vocab=vocab, draft_ids=_drafted(vocab))
    config |= _TAPS
    return target, tiny_heads.save_head(folder / "head", tensors, config), tensors, config


def export_head(out: Path, target: Path, head: Path, options: ExportOptions = EXACT) -> Path:
    export(str(target), out, head=str(head), options=options)
    return out


def agreeing_bundle(folder: Path, kind: str, tokenizer: Tokenizer, options: ExportOptions = LOW_BIT) -> Path:
    return export_head(folder / "bundle", *agreeing_head(folder, kind, tokenizer), options)


def agreeing_head(
    folder: Path, kind: str, tokenizer: Tokenizer, max_positions: int = MAX_POSITIONS
) -> tuple[Path, Path]:
    """The target's layers change its streams little, so that the last token says most about the next one; the head
    passes that token on and so agrees with it often."""
    target, _, tensors, config = random_head(folder, kind, tokenizer, max_positions)
    model = AutoModelForCausalLM.from_pretrained(target)
    for weight in model.model.layers.parameters():
        if weight.ndim == 2:
            weight.data *= 0.6
    model.save_pretrained(target)
    hidden, vocab = model.config.hidden_size, model.config.vocab_size
    if kind in LAYOUTS:
        add_mtp(target, kind, scale=0.02, first=torch.eye(hidden))
        return target, target
    embedding, lm_head = (part.weight.detach() for part in (model.model.embed_tokens, model.lm_head))
    for name, tensor in tensors.items():
        if name.endswith("norm.weight"):
            tensors[name] = torch.ones_like(tensor)
        elif name not in ("d2t", "t2d"):
            tensors[name] = 0.1 * tensor
    tensors["embed_tokens.weight"] = embedding
    if kind == "eagle":
        tensors["fc.weight"][:, :hidden] += torch.eye(hidden)
    else:
        config |= {"num_key_value_heads": config["num_attention_heads"]}
        tensors |= _attends_to_itself(hidden)
        tensors["lm_head.weight"] = lm_head[list(_drafted(vocab))]
    return target, tiny_heads.save_head(folder / "agreeing", tensors, config)


def _attends_to_itself(hidden: int) -> Tensors:
    """Constant queries and keys, which rotation makes the more alike the nearer they are; values are the token."""
    parts = {f"midlayer.self_attn.{name}_proj.weight": torch.zeros(hidden, 2 * hidden) for name in ("q", "k", "v")}
    parts["midlayer.self_attn.v_proj.weight"][:, :hidden] = torch.eye(hidden)
    parts |= {f"midlayer.self_attn.{name}_proj.bias": torch.full((hidden,), 8.0) for name in ("q", "k")}
    parts["midlayer.self_attn.v_proj.bias"] = torch.zeros(hidden)
    return parts | {"midlayer.self_attn.o_proj.weight": 4 * torch.eye(hidden)}
