"""torch's own logits of a checkpoint, with the weights of one module in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .packing import separate, unpack
from .passes import PackedWeight, Plan
from .trace import first_names, new_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from transformers import PretrainedConfig

    from .weights import StoredTensor

Array = np.ndarray[Any, np.dtype[Any]]
Reader = Callable[[str], Array]


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
    with torch.device("meta"):
        model = new_model(config, "sdpa")
    names = first_names(model)
    output_layer: Callable[[], torch.nn.Module | None] = model.get_output_embeddings
    head = output_layer()
    for name, module in list(model.named_modules()):
        if any(
            key == "inv_freq" for key, _ in module.named_buffers(recurse=False)
        ):  # computed, not stored: made anew with values
            model.set_submodule(name, type(module)(config))
        else:
            _load_on_demand(module, name, names, read_head if module is head else read)
    streams: list[Array] = []
    decoder: Any = model.base_model
    for module in (*decoder.layers, decoder.norm):
        module.register_forward_pre_hook(lambda _module, arguments: streams.append(arguments[0][0].numpy().copy()))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return np.asarray(logits.numpy()), streams


def _load_on_demand(module: torch.nn.Module, name: str, names: dict[str, str], read: Reader) -> None:
    """Gives a module's own parameters values just before it runs and takes them away after."""
    empty = dict(module.named_parameters(recurse=False))
    if not empty:
        return

    def load(_module: torch.nn.Module, _arguments: object) -> None:
        for key in empty:
            values = torch.from_numpy(np.array(read(names[f"{name}.{key}"])))
            setattr(module, key, torch.nn.Parameter(values, requires_grad=False))

    def drop(_module: torch.nn.Module, _arguments: object, _result: object) -> None:
        for key, parameter in empty.items():
            setattr(module, key, parameter)

    module.register_forward_pre_hook(load)
    module.register_forward_hook(drop)


class StoredWeights:
    """Parameters of the checkpoint as the weights file holds them: unpacked, with the stored integers."""

    def __init__(self, plan: Plan, tensors: Mapping[Path, Iterable[StoredTensor]]) -> None:
        """`tensors` by the weights file that they are in."""
        self._plan = plan
        self._places = {
            tensor.name: (np.memmap(path, mode="r", dtype=np.uint8), tensor)
            for path, stored in tensors.items()
            for tensor in stored
        }
        self._vectors = {source: item for item in plan.vectors.values() for source in item.sources}
        self._head = plan.weights.get("lm_head")
        others = [item for item in plan.weights.values() if item is not self._head]
        self._weights = {source: item for item in others for source in item.sources}
        self._last: tuple[PackedWeight, Array] | None = None  # q, k and v follow each other

    def read(self, parameter: str) -> Array:
        """A parameter as f32."""
        item = self._vectors.get(parameter) or self._weights[parameter]
        rows = self._matrix(item) if isinstance(item, PackedWeight) else self._bytes(item.name).view(np.float32)
        if item.interleaved:
            return separate(rows)[item.sources.index(parameter)]
        start = sum(self._plan.shape(source)[0] for source in item.sources[: item.sources.index(parameter)])
        return rows[start : start + self._plan.shape(parameter)[0]]

    def read_head(self, parameter: str) -> Array:
        """The output layer's rows: its own matrix, or the embedding's if they share one."""
        return self.read(parameter) if self._head is None else self._matrix(self._head)

    def _matrix(self, weight: PackedWeight) -> Array:
        if self._last is None or self._last[0] != weight:
            packed = self._bytes(weight.name)
            self._last = (weight, unpack(packed, weight.out_features, weight.in_features, weight.format))
        return self._last[1]

    def _bytes(self, name: str) -> Array:
        file, tensor = self._places[name]
        return np.array(file[tensor.offset : tensor.offset + tensor.bytes])
