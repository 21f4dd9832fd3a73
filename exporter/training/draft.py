"""The draft: a small Llama over the target's tokens, its first weights, and the folder that transformers reads."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.exporter.checkpoint_check import check_checkpoint
from pilotfish.exporter.errors import ExportError
from pilotfish.exporter.load import load_checkpoint

from .acceptance import CHAIN_DEPTH, AcceptanceScores
from .errors import DataError, TrainingOptionError
from .losses import Distance
from .storage import storage_errors
from .student import Student
from .target import Seen, Target, last_hidden, output_weight

if TYPE_CHECKING:
    from pathlib import Path

    from .rows import Batch
    from .shapes import DraftShape

_INITIAL_STD = 0.02
_DEFAULT_THETA = 10_000.0
_LAYERS = "model.layers."
_LAYER_OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")  # what a layer adds to its input


class DraftStudent(Student):
    """A draft model: reads tokens alone, and guesses the next one at every position."""

    lead = 0

    def __init__(self, draft: LlamaForCausalLM, loss: str) -> None:
        super().__init__(loss, depth=1, decay=1.0)
        self.draft = draft

    @property
    def max_depth(self) -> int | None:
        """It drafts on as long as it is asked to."""
        return None

    def guess(self, batch: Batch, seen: Seen, target_head: Tensor, depth: int) -> list[tuple[Tensor, Tensor]]:  # noqa: ARG002
        """Its own next-token distribution."""
        return [(last_hidden(self.draft, batch.token_ids, batch.position_ids), output_weight(self.draft))]

    def forward(self, batch: Batch, seen: Seen, target_head: Tensor) -> Distance:
        """A chain that reaches a position has read the same text, so its guess there is the same at every depth."""
        found = super().forward(batch, seen, target_head)
        deep = (value.expand(CHAIN_DEPTH, -1) for value in (found.overlap, found.agrees))
        return Distance(found.loss_sum, *deep)

    def ranks(self, batch: Batch, seen: Seen, target_head: Tensor, tokens: Tensor, depth: int) -> Tensor:
        """The same places at every depth."""
        return super().ranks(batch, seen, target_head, tokens, 1).expand(depth, -1, -1)

    def merit(self, scores: AcceptanceScores) -> float:
        """Acceptance of one token."""
        return scores.sampled

    def save(self, folder: Path) -> None:
        """As transformers and `pilotfish export` read it."""
        save_draft(self.draft, folder)

    def describe(self) -> str:
        """For the card."""
        config = self.draft.config
        return (
            f"Llama, hidden {config.hidden_size}, {config.num_hidden_layers} layers, "
            f"{config.num_attention_heads} heads ({config.num_key_value_heads} KV), FFN {config.intermediate_size}, "
            "tied embeddings"
        )


def read_draft(folder: Path, target: Target) -> LlamaForCausalLM:
    """A finished draft from its folder, in f32.

    Raises:
        DataError: it cannot be read, is no Llama whose tensors are those of its configuration, or knows fewer tokens
            than the target's tokenizer.
    """
    try:
        checkpoint = load_checkpoint(str(folder))
        check_checkpoint(checkpoint, uses_mtp=False, ignore_unused=False)  # transformers makes up what is missing
    except ExportError as error:
        raise DataError(f"the draft {folder} cannot be read: {error}") from error
    if checkpoint.config.model_type != "llama":
        raise DataError(
            f"the draft {folder} has model_type {checkpoint.config.model_type!r}; drafts are made as 'llama'"
        )
    try:
        draft = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError) as error:
        raise DataError(f"the draft {folder} cannot be read: {str(error).splitlines()[0]}") from error
    if draft.config.vocab_size < target.vocab_size:
        raise DataError(
            f"the draft {folder} has {draft.config.vocab_size} tokens, the target's tokenizer {target.vocab_size}"
        )
    return draft


def draft_config(shape: DraftShape, target: Target) -> LlamaConfig:
    """The draft's configuration: the target's tokens and context, its own dimensions."""
    config = target.model.config
    rope = getattr(config, "rope_parameters", None) or {}
    return LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.ffn_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.hidden_size // shape.num_heads,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": float(rope.get("rope_theta", _DEFAULT_THETA))},
        tie_word_embeddings=True,
        initializer_range=_INITIAL_STD,
        bos_token_id=target.checkpoint.tokenizer.bos_id if target.checkpoint.tokenizer else None,
        eos_token_id=list(target.eos_ids) if len(target.eos_ids) > 1 else target.eos_ids[0],
        pad_token_id=target.pad_id,
    )


def new_draft(shape: DraftShape, target: Target, seed: int, initial: Path | None) -> LlamaForCausalLM:
    """A draft with random weights by the seed, its embedding the target's in fewer dimensions; or `initial`'s weights.

    A draft with more layers than `initial` begins as the same function: the further layers add nothing yet.

    Raises:
        TrainingOptionError: `initial` is not a draft of this shape, or has more layers.
    """
    torch.manual_seed(seed)
    draft = LlamaForCausalLM(draft_config(shape, target))
    if initial is None:
        embedding = draft.model.embed_tokens.weight
        embedding.data.copy_(project_embedding(target.head.float().cpu(), shape.hidden_size))
    else:
        load_weights(draft, initial)
    return draft


def project_embedding(head: Tensor, hidden_size: int) -> Tensor:
    """[vocab, target hidden] -> [vocab, hidden_size]: principal directions, scaled to the usual initial spread.

    Tokens that the target tells apart by similar logits start close together, which random rows would have to learn.
    """
    centred = head - head.mean(dim=0)
    _, directions = torch.linalg.eigh(centred.T @ centred)  # ascending
    projected = centred @ directions.flip(1)[:, :hidden_size]
    if projected.shape[1] < hidden_size:
        extra = torch.randn(len(projected), hidden_size - projected.shape[1]) * projected.std()
        projected = torch.cat([projected, extra], dim=1)
    scaled: Tensor = projected * (_INITIAL_STD / projected.std())
    return scaled


@torch.no_grad()
def load_weights(draft: LlamaForCausalLM, folder: Path) -> None:
    """Fills the draft from a folder's model.safetensors; layers beyond that one's add 0 to their input.

    Raises:
        TrainingOptionError: missing or other tensors, or more layers than the draft has.
    """
    path = folder / "model.safetensors"
    if not path.is_file():
        raise TrainingOptionError(f"initial is {folder}; it has no model.safetensors")
    found = load_file(path)
    expected = {name: tensor for name, tensor in draft.state_dict().items() if name != "lm_head.weight"}
    for name in _of_further_layers(expected, found):
        weight = expected.pop(name)
        if name.endswith(_LAYER_OUTPUTS):
            weight.zero_()
    for name, tensor in expected.items():
        shape = list(found[name].shape) if name in found else "missing"
        if shape != list(tensor.shape):
            raise TrainingOptionError(f"{path}: tensor {name} is {shape}, this draft needs {list(tensor.shape)}")
    extra = sorted(set(found) - set(expected) - {"lm_head.weight"})
    if extra:
        raise TrainingOptionError(
            f"{path} has {len(extra)} tensors that this draft has no place for, such as {extra[0]}"
        )
    draft.load_state_dict({name: tensor.float() for name, tensor in found.items() if name in expected}, strict=False)


def _of_further_layers(expected: dict[str, Tensor], found: dict[str, Tensor]) -> list[str]:
    """Tensors of the layers that come after all layers of `found`."""
    layers = {name.split(".")[2] for name in found if name.startswith(_LAYERS)}
    return [
        name
        for name in expected
        if name.startswith(_LAYERS) and layers and int(name.split(".")[2]) > max(int(layer) for layer in layers)
    ]


def save_draft(draft: LlamaForCausalLM, folder: Path) -> None:
    """model.safetensors (f16), config.json and generation_config.json, as transformers and `pilotfish export` read."""
    partial = folder / "draft.partial"
    with storage_errors(folder):
        shutil.rmtree(partial, ignore_errors=True)
        nn.Module.to(draft, torch.float16)
        draft.save_pretrained(partial)
        config_path = partial / "config.json"
        config = json.loads(config_path.read_text())
        config_path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        for path in sorted(partial.iterdir()):
            path.replace(folder / path.name)
        partial.rmdir()
