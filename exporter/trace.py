"""A transformers decoder -> an ONNX graph with one Attention node a layer and one Projection node a linear layer.

The model lives on torch's meta device: no weight is read, so tracing a 7B model takes seconds and no memory.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
)

from . import own_attention
from .errors import CheckpointError, UnsupportedModelError, in_one_line
from .layer_kinds import NotRepeatableError, layer_index, layer_kinds
from .own_operators import OWN_TRANSLATIONS
from .repeat import TRANSLATIONS, repeat_layers, stand_ins
from .rotary_tables import fix_frequencies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx_ir as ir

ATTENTION = "pilotfish"  # our name in transformers' attention registry
# What transformers passes along that does not change the attention of a causal pass without cache.
_HARMLESS = {
    "dropout",
    "position_ids",
    "position_embeddings",
    "use_cache",
    "output_attentions",
    "return_dict",
    "is_causal",
}
_QUIET_LOGGERS = ("torch.onnx", "torch.export", "torch._subclasses", "torch._dynamo", "onnxscript", "onnx_ir")


def _capture_attention(  # type: ignore[no-untyped-def]  # noqa: PLR0917 - transformers calls it so
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, num_heads, num_tokens, head_dim]
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    slopes: tuple[float, ...] = (),
    key_biases: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,  # sinks
    **extra,  # noqa: ANN003
) -> tuple[torch.Tensor, None]:
    """The attention function of transformers' registry: records the call as one operator."""
    layer = layer_index(module)
    causal = extra.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    unknown = sorted(
        name for name, given in extra.items() if given is not None and given is not False and name not in _HARMLESS
    )
    if layer is None or unknown or attention_mask is not None or not causal:
        reason = f"uses {', '.join(unknown)}" if unknown else "has no layer index or is not plainly causal"
        raise UnsupportedModelError(f"attention of {type(module).__name__}, layer {layer}, {reason}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    args = (query, key, value, int(layer), float(scale), int(sliding_window or 0), float(softcap or 0.0))
    return torch.ops.pilotfish.attention(*args, list(slopes), key_biases, s_aux), None


def _no_mask(*_args: object, **_kwargs: object) -> None:
    """The operator knows the mask; transformers must not build one."""


AttentionInterface.register(ATTENTION, _capture_attention)
AttentionMaskInterface.register(ATTENTION, _no_mask)
own_attention.register(ATTENTION, _capture_attention)


class PackedCausalLM(torch.nn.Module):
    """A causal LM over packed tokens: ids and positions [num_tokens, 1] -> logits [num_tokens, 1, vocab_size]."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Runs sequences of one token each, so that all but attention acts on each token by itself."""
        logits: torch.Tensor = self.model(input_ids=input_ids, position_ids=position_ids, use_cache=False).logits
        return logits


def build_on_meta(config: PretrainedConfig) -> PreTrainedModel:
    """The model of a configuration without weights, its attention set to be captured."""
    model = new_model(config, ATTENTION)
    own_attention.put(model, config.model_type, _capture_attention)
    return model


def new_model(config: PretrainedConfig, attention: str) -> PreTrainedModel:
    """The model of a configuration on the meta device, with an attention of transformers' registry."""
    build: Callable[..., PreTrainedModel] = AutoModelForCausalLM.from_config
    try:
        with torch.device("meta"):
            model = build(config, attn_implementation=attention, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # whatever its class raises on values that a user wrote
        raise CheckpointError(f"no {config.model_type} model has this configuration: {in_one_line(error)}") from error
    model.train(mode=False)
    fix_frequencies(model)
    return model


def computed_buffers(config: PretrainedConfig) -> dict[str, torch.Tensor]:
    """Tensors that a model computes when it is built and no checkpoint has, such as rotary frequencies, by name."""
    build: Callable[..., PreTrainedModel] = AutoModelForCausalLM.from_config
    with _MatricesOnMeta():
        # a copy, since transformers notes the attention in the configuration, which other models may be reading
        model = build(deepcopy(config), attn_implementation=ATTENTION, dtype=torch.float32, trust_remote_code=False)
    stored = model.state_dict().keys()
    return {name: value for name, value in model.named_buffers() if name not in stored and not value.is_meta}


class _MatricesOnMeta(TorchFunctionMode):
    """While a model is built, its matrices, which are made uninitialised, take no memory; all else has its values."""

    def __torch_function__(self, function: Any, kinds: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        if function is torch.empty:
            options = {**options, "device": "meta"}
        return function(*arguments, **options)


def trace(model: PreTrainedModel, note: Callable[[str], None] = warnings.warn) -> ir.Model:
    """Exports a model built by `build_on_meta`; num_tokens, in place of a batch, is dynamic.

    One layer of each kind is traced and repeated; `note` is told why where that is not possible, which takes longer.

    Raises:
        UnsupportedModelError: torch cannot export it, or its attention does not go through transformers' interface.
    """
    try:
        kinds = layer_kinds(model)
    except NotRepeatableError as error:
        note(f"every layer of {type(model).__name__} is traced by itself, which takes longer: {error}")
        return trace_whole(model)
    with stand_ins(kinds):
        exported = _exported(model)
    repeat_layers(exported.graph, kinds)
    return _checked(exported, model)


def trace_whole(model: PreTrainedModel) -> ir.Model:
    """The same with every layer traced."""
    return _checked(_exported(model), model)


def _exported(model: PreTrainedModel) -> ir.Model:
    tokens = torch.export.Dim("num_tokens")
    ids, positions = (torch.zeros((7, 1), dtype=torch.int64, device="meta") for _ in range(2))
    table = {**OWN_TRANSLATIONS, **TRANSLATIONS}
    name = type(model).__name__
    try:
        with _quiet():
            program = torch.onnx.export(
                PackedCausalLM(model).eval(),
                (ids, positions),
                dynamo=True,
                dynamic_shapes=({0: tokens}, {0: tokens}),
                custom_translation_table=table,
                optimize=False,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise _root_cause(error, name) from error
    if program is None:
        raise UnsupportedModelError(f"torch exports nothing for {name}")
    return program.model


def _checked(exported: ir.Model, model: PreTrainedModel) -> ir.Model:
    """With checkpoint names, if every layer's attention is there."""
    captured = sum(node.op_type == "Attention" for node in exported.graph)
    if captured != model.config.num_hidden_layers:
        raise UnsupportedModelError(
            f"{type(model).__name__} sends {captured} of its {model.config.num_hidden_layers} layers through "
            "transformers' attention interface; every layer must go through it"
        )
    _name_parameters(exported.graph, model)
    return exported


def first_names(model: PreTrainedModel) -> dict[str, str]:
    """Name of each parameter and buffer -> its checkpoint name: the first one where modules share a tensor."""
    first: dict[int, str] = {}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: first.setdefault(id(tensor), name) for name, tensor in tensors}


def _name_parameters(graph: ir.Graph, model: PreTrainedModel) -> None:
    """Gives the traced parameters and buffers their checkpoint names, and no data."""
    for name, checkpoint_name in first_names(model).items():
        traced = graph.initializers.get(f"model.{name}")
        if traced is not None:
            traced.name = checkpoint_name
            traced.const_value = None


def _root_cause(error: BaseException, name: str) -> UnsupportedModelError:
    """Our own refusal if it is what stopped torch, else a refusal with torch's first line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnsupportedModelError):
            return cause
        innermost, cause = cause, cause.__cause__ or cause.__context__
    return UnsupportedModelError(f"torch cannot export {name}: {str(innermost).splitlines()[0]}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch's notes about optional packages off stderr."""
    loggers = [logging.getLogger(name) for name in _QUIET_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
