"""Which layers of a decoder are the same computation with other weights, so that one of each kind need be traced.

Two layers are of one kind if their modules are equal in all but their parameters' values and their own index, which
they are seen not to compute with, and if the model calls both in the same way. Knows nothing about graphs.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import TreeSpec, tree_flatten
from transformers import PretrainedConfig
from transformers.cache_utils import KVSharingDict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from transformers import PreTrainedModel

_INDEX = "layer_idx"
_NUM_TOKENS = 7  # of the pass that shows how layers are called
_OF_TORCH = set(vars(torch.nn.Module())) - {"training"}  # what every module has
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, range)


class NotRepeatableError(Exception):
    """Why layers cannot be told apart, so that each has to be traced; the words of a note."""


@dataclass(frozen=True, slots=True)
class LayerKinds:
    """The layers of a model and what they repeat."""

    prefix: str  # of their names, such as "model.layers"
    layers: tuple[torch.nn.Module, ...]
    first: tuple[int, ...]  # of each layer's kind
    result: tuple[TreeSpec, tuple[Any, ...]]  # of a layer; of its leaves exactly one is a tensor, shown as `...`

    @property
    def repeated(self) -> set[int]:
        """First layers of kinds that have more than one."""
        return {first for index, first in enumerate(self.first) if index != first}


def layer_kinds(model: PreTrainedModel) -> LayerKinds:
    """Compares the layers of a model on the meta device and runs it once.

    Raises:
        NotRepeatableError: its layers are not one list, or something about them that cannot be compared.
    """
    prefix, layers = _layers_of(model)
    calls = _Calls(layers)
    # fake tensors, since transformers asks other tensors for values
    with calls, torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        ids, positions = (torch.zeros((_NUM_TOKENS, 1), dtype=torch.int64, device="meta") for _ in range(2))
        try:
            model(input_ids=ids, position_ids=positions, use_cache=False)
        except NotRepeatableError:
            raise
        except Exception as error:  # of whatever class a model raises; tracing meets it too and says more
            raise NotRepeatableError(f"a pass without weights ends in {type(error).__name__}") from error
    if calls.order != list(range(len(layers))):
        raise NotRepeatableError("they are not called once each, one after the other")
    kinds: dict[Hashable, int] = {}
    first = tuple(
        kinds.setdefault((_module_key(layer, index), calls.keys[index]), index) for index, layer in enumerate(layers)
    )
    _check_parameters(model)
    return LayerKinds(prefix, tuple(layers), first, calls.results[0])


def _layers_of(model: PreTrainedModel) -> tuple[str, list[torch.nn.Module]]:
    count = model.config.num_hidden_layers
    lists = [
        (name, list(module))
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == count
    ]
    outer = [item for item in lists if not any(item[0].startswith(f"{name}.") for name, _ in lists)]
    if len(outer) != 1:
        raise NotRepeatableError(f"{len(outer)} lists of {count} modules are in it, not one")
    return outer[0]


def _check_parameters(model: PreTrainedModel) -> None:
    """Each parameter of a layer has to be its own: names are all that copies of its nodes differ in."""
    owners: dict[int, str] = {}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    prefix = _layers_of(model)[0] + "."
    for name, tensor in tensors:
        first = owners.setdefault(id(tensor), name)
        if first != name and (name.startswith(prefix) or first.startswith(prefix)):
            raise NotRepeatableError(f"{name} is the tensor {first}, too")


def _module_key(layer: torch.nn.Module, index: int) -> Hashable:
    """All that a layer's forward pass can read of its modules but the values of parameters."""
    return tuple(
        (name, type(module), _own_tensors(module), _own_attributes(module, name, index))
        for name, module in layer.named_modules(remove_duplicate=False)
    )


def _own_tensors(module: torch.nn.Module) -> Hashable:
    tensors = {**module._parameters, **module._buffers}  # noqa: SLF001 - those that are None, too
    return tuple(
        (name, None if tensor is None else (tuple(tensor.shape), tensor.dtype)) for name, tensor in tensors.items()
    )


def _own_attributes(module: torch.nn.Module, name: str, index: int) -> Hashable:
    found = []
    for key, value in vars(module).items():
        if key in _OF_TORCH:
            if key.endswith("_hooks") and value:
                raise NotRepeatableError(f"{name or 'a layer'} has hooks")
            continue
        is_index = key == _INDEX and isinstance(value, int) and value == index
        found.append((key, _INDEX if is_index else _key(value, f"{name}.{key}".lstrip("."), module)))
    return tuple(found)


def _key(value: object, where: str, owner: torch.nn.Module | None = None) -> Hashable:
    """Something that is equal for equal values; functions and configurations are equal to themselves alone."""
    if isinstance(value, _PLAIN):
        return type(value), repr(value)  # apart: 0 and 0.0 and False, and one NaN is another
    if isinstance(value, (tuple, list, set, frozenset)):
        keys = tuple(_key(item, where, owner) for item in value)
        return type(value), keys if isinstance(value, (tuple, list)) else frozenset(keys)
    if isinstance(value, dict):
        return type(value), tuple((_key(key, where), _key(item, where, owner)) for key, item in value.items())
    if isinstance(value, functools.partial):
        return "partial", _key(value.func, where, owner), _key(value.args, where), _key(value.keywords, where)
    if inspect.ismethod(value) and value.__self__ is owner:
        return "method", id(value.__func__)
    # Of layers that share keys and values, those that make them are no two alike, and the others only read.
    if isinstance(value, (PretrainedConfig, Enum, type, KVSharingDict)) or (
        inspect.isroutine(value) and not inspect.ismethod(value)
    ):
        return "same", id(value)
    raise NotRepeatableError(f"{where} is a {type(value).__name__}, which cannot be compared")


class _LayerIndex:
    """Stands for a layer's index while the model runs: it can be passed on, and whoever computes with it is noticed."""

    def __init__(self, index: int) -> None:
        self.index = index

    def _read(self, *_: object) -> NoReturn:
        raise NotRepeatableError("they compute with their own index")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = _read
    __int__ = __index__ = __float__ = __str__ = __repr__ = __format__ = _read
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __floordiv__ = __truediv__ = _read


def layer_index(module: torch.nn.Module) -> int | None:
    """The index that a module of a layer knows, which reading here is no computing with."""
    found: Any = getattr(module, _INDEX, None)
    return found.index if isinstance(found, _LayerIndex) else found


class _Calls:
    """How a model calls its layers, seen while it runs: `keys` are equal where that is the same."""

    def __init__(self, layers: list[torch.nn.Module]) -> None:
        self.order: list[int] = []
        self.keys: dict[int, Hashable] = {}
        self.results: list[tuple[TreeSpec, tuple[Any, ...]]] = []
        self._layers = layers
        self._given: list[tuple[torch.Tensor, int]] = []
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        for index, layer in enumerate(self._layers):
            before = layer.register_forward_pre_hook(functools.partial(self._before, index), with_kwargs=True)
            after = layer.register_forward_hook(functools.partial(self._after, index))
            self._undo += [before.remove, after.remove]
            for module in layer.modules():
                if isinstance(module.__dict__.get(_INDEX), int) and module.layer_idx == index:
                    setattr(module, _INDEX, _LayerIndex(index))
                    self._undo.append(functools.partial(setattr, module, _INDEX, index))

    def __exit__(self, *_: object) -> None:
        for undo in self._undo:
            undo()

    def _before(
        self, index: int, _layer: torch.nn.Module, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        self.order.append(index)
        leaves, spec = tree_flatten((arguments, dict(options)))
        self._given = [(leaf, leaf._version) for leaf in leaves if isinstance(leaf, torch.Tensor)]  # noqa: SLF001
        self.keys[index] = repr(spec), tuple(_leaf_key(leaf) for leaf in leaves)

    def _after(self, index: int, _layer: torch.nn.Module, _arguments: object, result: Any) -> None:
        leaves, spec = tree_flatten(result)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if any(tensor._version != version for tensor, version in self._given):  # noqa: SLF001
            raise NotRepeatableError("they change their input in place")
        if len(tensors) != 1 or not self._given or _leaf_key(tensors[0]) != _leaf_key(self._given[0][0]):
            raise NotRepeatableError("they give out something else than one tensor that is like their input")
        self.keys[index] = self.keys[index], repr(spec), tuple(_leaf_key(leaf) for leaf in leaves)
        self.results.append((spec, tuple(... if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)))


def _leaf_key(leaf: object) -> Hashable:
    if not isinstance(leaf, torch.Tensor):
        return _key(leaf, "what they are called with")
    strides = tuple(stride for stride, size in zip(leaf.stride(), leaf.shape, strict=True) if size != 1)
    return tuple(leaf.shape), strides, leaf.dtype
