"""torch's own logits of a checkpoint, with the weights of one module in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from . import own_alibi
from .buffers import Buffers
from .packing import separate, sides, unpack
from .passes import PackedWeight, Plan
from .trace import computed_buffers, first_names, new_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from transformers import PretrainedConfig, PreTrainedModel

    from .weights_file import StoredTensor

Array = np.ndarray[Any, np.dtype[Any]]
Reader = Callable[[str], Array]
_FINAL_NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")


def torch_logits(config: PretrainedConfig, read: Reader, read_head: Reader, ids: list[int]) -> Array:
    """Logits f32 [num_tokens, num_logits] of one causal pass.

    `read` gives a parameter by its checkpoint name. The output layer's comes from `read_head`: where it shares the
    embedding's tensor, it may be stored in another format or with fewer rows.
    """
    return torch_streams(config, read, read_head, ids)[0]


def torch_streams(
    config: PretrainedConfig, read: Reader, read_head: Reader, ids: list[int]
) -> tuple[Array, list[Array]]:
    """The same logits, and the residual streams into each layer and into the final norm, f32 [num_tokens, hidden]."""
    model = on_demand(config, read, read_head)
    streams: list[Array] = []
    for module in stream_readers(model):
        module.register_forward_pre_hook(_keep_stream(streams), with_kwargs=True)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return np.asarray(logits.numpy()), streams


def on_demand(config: PretrainedConfig, read: Reader, read_head: Reader) -> PreTrainedModel:
    """The model of a configuration, each module's matrices read just before it runs and dropped after."""
    with torch.device("meta"):
        model = new_model(config, attention_for_reference(config))
    names = first_names(model)
    output_layer: Callable[[], torch.nn.Module | None] = model.get_output_embeddings
    head = output_layer()
    _set_buffers(model, config, read, names)
    for name, module in list(model.named_modules()):
        _load_on_demand(module, name, names, read_head if module is head else read)
    return model


def _keep_stream(streams: list[Array]) -> Callable[..., None]:
    def keep(_module: torch.nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        stream = arguments[0] if arguments else options.get("hidden_states")
        if stream is not None:
            streams.append(stream[0].numpy().copy())

    return keep


def attention_for_reference(config: PretrainedConfig) -> str:
    """The attention of transformers that computes all that the configuration says.

    Its sdpa knows no softcap, no ALiBi but Falcon's (which is added twice without it), and no sinks.
    """
    is_eager = getattr(config, "attn_logit_softcapping", None) or config.model_type in own_alibi.MODEL_TYPES
    model: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return "eager" if is_eager or not model._supports_sdpa else "sdpa"  # noqa: SLF001


def stream_readers(model: PreTrainedModel) -> list[torch.nn.Module]:
    """Modules that the residual streams go into: each layer, and the final norm where it is known by name."""
    decoder: Any = model.base_model
    if hasattr(decoder, "decoder"):
        decoder = decoder.decoder
    layers: Any = next((getattr(decoder, name) for name in ("layers", "h") if hasattr(decoder, name)), [])
    norms = [getattr(decoder, name) for name in _FINAL_NORMS if getattr(decoder, name, None) is not None]
    return [*layers, *norms[:1]]


def _set_buffers(model: PreTrainedModel, config: PretrainedConfig, read: Reader, names: Mapping[str, str]) -> None:
    """Gives what the model computes when it is built its values, and what else is no parameter the checkpoint's."""
    values = computed_buffers(config)
    stored = model.state_dict().keys()
    for name in [name for name, _ in model.named_buffers()]:
        if name in stored:
            values[name] = torch.from_numpy(np.array(read(names[name])))
        if name in values:
            path, _, key = name.rpartition(".")
            model.get_submodule(path).register_buffer(key, values[name], persistent=False)


def _load_on_demand(module: torch.nn.Module, name: str, names: dict[str, str], read: Reader) -> None:
    """Gives a module's own matrices values just before it runs and takes them away after; vectors stay.

    Some modules are used by other methods than their forward, around which nothing can be done; their own parameters
    are vectors.
    """
    parameters = dict(module.named_parameters(recurse=False))
    empty = {key: parameter for key, parameter in parameters.items() if parameter.ndim > 1}

    def give(key: str) -> None:
        values = read(names[f"{name}.{key}"])
        owned = values if values.flags.writeable else values.copy()
        setattr(module, key, torch.nn.Parameter(torch.from_numpy(owned), requires_grad=False))

    for key in parameters.keys() - empty.keys():
        give(key)
    if not empty:
        return

    def load(_module: torch.nn.Module, _arguments: object) -> None:
        for key in empty:
            give(key)

    def drop(_module: torch.nn.Module, _arguments: object, _result: object) -> None:
        for key, parameter in empty.items():
            setattr(module, key, parameter)

    module.register_forward_pre_hook(load)
    module.register_forward_hook(drop)


class StoredWeights:
    """Parameters of the checkpoint as the weights file holds them: unpacked, with the stored integers."""

    def __init__(
        self, plan: Plan, tensors: Mapping[Path, Iterable[StoredTensor]], original: Reader | None = None
    ) -> None:
        """`tensors` by the weights file that they are in; `original` reads what is not stored as it is."""
        self._plan, self._original, self._buffers = plan, original, Buffers()
        self._places = {tensor.name: (path, tensor) for path, stored in tensors.items() for tensor in stored}
        vectors = [item for item in plan.vectors.values() if item.is_plain]
        self._vectors = {source: item for item in vectors for source in item.sources}
        self._head = plan.weights.get("lm_head")
        others = [item for item in plan.weights.values() if item is not self._head]
        self._weights = {source: item for item in others if _has_all_rows(item, plan) for source in item.sources}
        self._last: tuple[PackedWeight, Array] | None = None  # q, k and v follow each other

    def read(self, parameter: str) -> Array:
        """A parameter as f32."""
        item = self._vectors.get(parameter) or self._weights.get(parameter)
        if item is None and self._original is not None:
            return self._original(parameter)
        if item is None:
            raise KeyError(parameter)
        rows = self._matrix(item) if isinstance(item, PackedWeight) else self._bytes(item.name).view(np.float32)
        if item.interleaved and item.is_plain:
            side = sides(rows)[:, item.sources.index(parameter)]
            found = self._buffers.empty((rows.shape[0] // 2, *rows.shape[1:]))
            found.reshape(side.shape)[...] = side
            return found
        if item.interleaved:
            rows = np.concatenate(separate(rows))
        is_trimmed = item.rows is not None and item.rows == self._plan.logit_ids
        if isinstance(item, PackedWeight) and not item.is_plain and not is_trimmed:
            return self._restored(item, rows, parameter)
        start = sum(self._plan.shape(source)[0] for source in item.sources[: item.sources.index(parameter)])
        shape = self._plan.shape(parameter)
        return rows.reshape(-1, *shape[1:])[start : start + shape[0]]

    def _restored(self, weight: PackedWeight, rows: Array, parameter: str) -> Array:
        """A parameter whose rows are stored in another order, transposed or multiplied."""
        sizes = [self._plan.shape(source)[1 if weight.transposed else 0] for source in weight.sources]
        if weight.rows is not None:
            ordered = np.empty((sum(sizes), weight.in_features), dtype=np.float32)
            ordered[list(weight.rows)] = rows
            rows = ordered
        index = weight.sources.index(parameter)
        start = sum(sizes[:index])
        found = rows[start : start + sizes[index]] / np.float32(weight.scale)
        return np.asarray(found.T if weight.transposed else found)

    def read_head(self, parameter: str) -> Array:
        """The output layer's rows: its own matrix, or the embedding's if they share one."""
        bias = self._plan.vectors.get("lm_head_bias")
        if bias is not None and parameter in bias.sources:
            return self._bytes(bias.name).view(np.float32)
        return self.read(parameter) if self._head is None else self._matrix(self._head)

    def _matrix(self, weight: PackedWeight) -> Array:
        if self._last is None or self._last[0] != weight:
            self._last = None  # not two at a time
            packed, shape = self._bytes(weight.name), (weight.out_features, weight.in_features)
            self._last = (weight, unpack(packed, *shape, weight.format, self._buffers))
        return self._last[1]

    def _bytes(self, name: str) -> Array:
        path, tensor = self._places[name]
        return np.fromfile(path, np.uint8, tensor.bytes, offset=tensor.offset)


def _has_all_rows(weight: PackedWeight, plan: Plan) -> bool:
    """Whether its sources can be made of a matrix again."""
    axis = 1 if weight.transposed else 0
    total = sum(plan.shape(source)[axis] for source in weight.sources)
    return weight.rows is None or weight.rows == plan.logit_ids or set(weight.rows) == set(range(total))
