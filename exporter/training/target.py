"""The model to imitate: loaded once, frozen, perhaps with the very weights that a bundle stores."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from pilotfish.exporter.checkpoint_check import check_checkpoint
from pilotfish.exporter.errors import CheckpointError
from pilotfish.exporter.load import Checkpoint, load_checkpoint
from pilotfish.exporter.reference_model import attention_for_reference

from .errors import UnsupportedTargetError
from .stored_weights import store_as

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pilotfish.exporter.options import ModelFormats

_CHECK_TOKENS = 16
_MAX_HEAD_ERROR = 1e-3  # of the largest logit


class Seen(NamedTuple):
    """What the target makes of some rows of tokens; all [rows, length, hidden]."""

    hidden: Tensor  # after the last norm
    embedded: Tensor  # the tokens' rows of the embedding
    streams: tuple[Tensor, ...]  # residual streams at the taps that were asked for, in their order


@dataclass(frozen=True, slots=True)
class Target:
    """A frozen language model with its tokenizer."""

    checkpoint: Checkpoint
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    vocab_size: int  # the tokenizer's: rows of the model's vocabulary beyond it are padding
    eos_ids: tuple[int, ...]
    pad_id: int

    @property
    def backend(self) -> Tokenizer:
        """The tokenizer without the chat template."""
        return self.tokenizer.backend_tokenizer

    @property
    def hidden_size(self) -> int:
        """Columns of its hidden states."""
        return output_weight(self.model).shape[1]

    @property
    def head(self) -> Tensor:
        """[vocab_size, hidden]: hidden states times its transpose are the logits."""
        return output_weight(self.model)[: self.vocab_size]

    @torch.no_grad()
    def look(self, token_ids: Tensor, position_ids: Tensor | None, taps: Sequence[int] = ()) -> Seen:
        """One pass over [rows, length] tokens. Tap k is the stream into layer k, the last one that into the final norm.

        Raises:
            UnsupportedTargetError: a decoder whose layers or final norm are not where most have them.
        """
        with _listening(self.model, taps) as streams:
            hidden = last_hidden(self.model, token_ids, position_ids)
        return Seen(hidden, self.embed(token_ids), tuple(streams[tap] for tap in taps))

    @torch.no_grad()
    def embed(self, token_ids: Tensor) -> Tensor:
        """Rows of the embedding, [rows, length, hidden]."""
        embedding: Any = self.model.get_input_embeddings()
        return functional.embedding(token_ids, embedding.weight)


@contextmanager
def _listening(model: PreTrainedModel, taps: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Within it a pass leaves its residual streams in the yielded table."""
    decoder: Any = model.base_model
    if taps and not (hasattr(decoder, "layers") and hasattr(decoder, "norm")):
        raise UnsupportedTargetError(f"{type(decoder).__name__} has no layers and norm to take hidden states from")
    modules = [*decoder.layers, decoder.norm] if taps else []
    streams: dict[int, Tensor] = {}

    def listen(tap: int) -> Any:
        def keep(_module: Any, arguments: Any, named: Any) -> None:
            streams[tap] = arguments[0] if arguments else named["hidden_states"]

        return keep

    handles = [modules[tap].register_forward_pre_hook(listen(tap), with_kwargs=True) for tap in set(taps)]
    try:
        yield streams
    finally:
        for handle in handles:
            handle.remove()


def output_weight(model: PreTrainedModel) -> Tensor:
    """The matrix that makes logits of hidden states, [vocabulary, hidden]."""
    weight: Tensor = cast("Any", model).get_output_embeddings().weight
    return weight


def last_hidden(model: PreTrainedModel, token_ids: Tensor, position_ids: Tensor | None) -> Tensor:
    """Hidden states after the last norm; positions that restart at 0 separate texts that do not see each other."""
    extra = {} if position_ids is None else {"position_ids": position_ids}
    decoder: Any = model.base_model
    hidden: Tensor = decoder(input_ids=token_ids, use_cache=False, **extra).last_hidden_state
    return hidden


def load_target(name: str, formats: ModelFormats | None, dtype: torch.dtype, device: torch.device) -> Target:
    """Loads and checks the target; with `formats` its matrices get the values that the bundle's integers stand for.

    bf16 rounds those values once more, as it does every other weight.

    Raises:
        CheckpointError: no readable checkpoint, or one without a tokenizer.
        UnsupportedTargetError: logits that are not hidden states times a matrix.
    """
    checkpoint = load_checkpoint(name)
    if checkpoint.tokenizer is None:
        raise CheckpointError(f"{name} has no tokenizer; training text cannot be tokenised without it")
    check_checkpoint(checkpoint, uses_mtp=True, ignore_unused=True)  # transformers makes up what is missing
    model = _load_model(checkpoint)
    if formats is not None:
        store_as(model, formats, checkpoint.source(model))
    model.to(device).eval().requires_grad_(requires_grad=False)
    _check_head(model, name)
    info = checkpoint.tokenizer
    backend = Tokenizer.from_str(info.json_text)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        bos_token=None if info.bos_id is None else backend.id_to_token(info.bos_id),
        eos_token=backend.id_to_token(info.eos_ids[0]),
        chat_template=info.chat_template,
    )
    pad_id = info.eos_ids[0] if info.pad_id is None else info.pad_id
    return Target(checkpoint, model.to(dtype), tokenizer, min(info.size, model.config.vocab_size), info.eos_ids, pad_id)


def _load_model(checkpoint: Checkpoint) -> Any:
    """The model in f32 on the CPU; what is quantised is read here, since transformers may keep it packed."""
    attention = attention_for_reference(checkpoint.config)  # never one that a config.json names, which may be code
    if not checkpoint.path.is_file() and checkpoint.prequantised is None:
        return AutoModelForCausalLM.from_pretrained(
            str(checkpoint.path), attn_implementation=attention, dtype=torch.float32, trust_remote_code=False
        )
    model: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        checkpoint.config, attn_implementation=attention, dtype=torch.float32, trust_remote_code=False
    )
    source = checkpoint.source(model)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(torch.from_numpy(source.read(name).copy()))
    return model


@torch.no_grad()
def _check_head(model: Any, name: str) -> None:
    """Refuses models that scale, cap or shift their logits: the loss would imitate another distribution."""
    ids = torch.arange(_CHECK_TOKENS, device=model.device)[None] % model.config.vocab_size
    expected = model(input_ids=ids, use_cache=False).logits
    found = functional.linear(last_hidden(model, ids, None), output_weight(model))
    error = float((expected - found).abs().max() / expected.abs().max())
    if not error <= _MAX_HEAD_ERROR:
        raise UnsupportedTargetError(
            f"{name} computes its logits in another way than hidden states times a matrix "
            f"(relative difference {error:.1e}); such targets cannot be distilled yet"
        )
