"""A folder with quantised matrices as a source of tensors: their integers where a format holds them, else floats."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.errors import CheckpointError, ExportError, in_one_line

from . import layouts
from .layouts import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotfish.exporter.quantise import Quantised
    from pilotfish.exporter.sources import SafetensorsSource

    from .groups import Grouped
    from .method import Method

Array = np.ndarray[Any, np.dtype[Any]]
_GROUPED: dict[str, Callable[[Module], Grouped]] = {
    "gptq": layouts.gptq,
    "awq": layouts.awq,
    "packed": layouts.packed,
    "integers": layouts.integers,
    "llm_int8": layouts.llm_int8,
}
_FLOATS: dict[str, Callable[[Module], Array]] = {"fp8": layouts.fp8, "fp4": layouts.fp4, "nf4": layouts.nf4}
_MARKS = {  # the tensors of which a quantised module has one
    "gptq": ("qweight",),
    "awq": ("qweight",),
    "packed": ("weight_shape",),
    "integers": ("weight_scale",),
    "llm_int8": ("SCB",),
    "fp8": ("weight_scale_inv", "weight_scale"),
    "fp4": ("weight_scale",),
    "nf4": ("weight.quant_map",),
}
_VALUES = {"integers": ("I8",), "fp8": ("F8_E4M3", "F8_E5M2"), "fp4": ("U8",)}  # types, where layouts share a mark
_ACTIVATIONS = ("input_scale", "input_zero_point", "input_scale_ub", "activation_scale")  # a bundle rounds in its way
_CACHE_SCALES = (".k_scale", ".v_scale")  # of caches, which a bundle has in its own types
_PARTS = {  # the tensors that a quantised module may have in place of its weight
    "gptq": ("qweight", "qzeros", "scales", "g_idx"),
    "awq": ("qweight", "qzeros", "scales"),
    "packed": ("weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx", *_ACTIVATIONS),
    "integers": ("weight", "weight_scale", "weight_zero_point", *_ACTIVATIONS),
    "llm_int8": ("weight", "SCB", "weight_format"),
    "fp8": ("weight", *_MARKS["fp8"], *_ACTIVATIONS),
    "fp4": (
        *("weight", "weight_packed", "weight_scale", "weight_scale_2", "weight_global_scale"),
        *("input_global_scale", *_ACTIVATIONS),
    ),
    "nf4": (
        "weight",
        *(f"weight.{part}" for part in ("absmax", "quant_map", "nested_absmax", "nested_quant_map")),
        "weight.quant_state.bitsandbytes__nf4",
    ),
}
_DAMAGED = (ValueError, IndexError, KeyError, TypeError, RecursionError)  # by tensors of another kind


class PrequantisedSource:
    """Modules that the folder has not quantised are read as they are."""

    def __init__(self, folder: SafetensorsSource, method: Method) -> None:
        self._folder, self._method = folder, method
        self._grouped = lru_cache(maxsize=3)(self._read_grouped)  # type, blocks and floats of one are asked in turn

    def read(self, name: str) -> Array:
        """A tensor as f32."""
        layout = self._layout(name)
        if layout is None:
            return self._folder.read(name)
        if layout in _GROUPED:
            return self._grouped(name).dequantise()
        tensor: Array = self._checked(name, _FLOATS[layout])
        return tensor

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """The published integers, if the format holds them; scales are rounded to f16 where they are not in f16."""
        return self._grouped(name).blocks(format_name) if self._layout(name) in _GROUPED else None

    def stored_type(self, name: str) -> str | None:
        """A name that `formats` knows, such as "W4", "FP8" or "NF4"; that of the file for what is not quantised."""
        layout = self._layout(name)
        if layout is None:
            return self._folder.stored_type(name)
        return self._grouped(name).kind() if layout in _GROUPED else layout.upper()

    def names(self) -> list[str]:
        """The tensors of a quantised module are one, its weight; a bias of zeros, which GPTQ's tools add, is none."""
        found = {self._weight_of(name) or name for name in self._folder.names() if not name.endswith(_CACHE_SCALES)}
        return sorted(name for name in found if not self._is_empty_bias(name))

    def stored_name(self, name: str) -> str | None:
        """Of a quantised module the name of the weight that it would have."""
        layout = self._layout(name)
        if layout is None:
            return self._folder.stored_name(name)
        stem = name.removesuffix("weight")
        mark, stored = next(
            (stem + mark, found) for mark in _MARKS[layout] if (found := self._folder.stored_name(stem + mark))
        )
        return name[mark.index(stored) :]

    def shape(self, stored: str) -> tuple[int, ...]:
        """Of a quantised module that of the matrix."""
        layout = self._layout(stored)
        if layout is None:
            return self._folder.shape(stored)
        shape: tuple[int, ...] = self._checked(stored, lambda module: layouts.shape(layout, module))
        return shape

    def equal(self, stored: str, other: str) -> bool:
        """Of quantised modules whether they have the same parts and these are equal."""
        mine, theirs = self._parts(stored), self._parts(other)
        return mine.keys() == theirs.keys() and all(self._folder.equal(mine[part], theirs[part]) for part in mine)

    def packed_type(self, stored: str) -> str | None:
        """Of a tensor beside the quantised modules, as a plain folder has it."""
        return None if self._layout(stored) is not None else self._folder.packed_type(stored)

    def _layout(self, name: str) -> str | None:
        """How a weight is laid out, as its module's tensors tell; None: it is plain."""
        stem, _, kind = name.rpartition(".")
        if kind != "weight":
            return None
        return next((layout for layout in self._method.layouts if self._has_layout(stem, layout)), None)

    def _has_layout(self, stem: str, layout: str) -> bool:
        if all(self._folder.stored_name(f"{stem}.{mark}") is None for mark in _MARKS[layout]):
            return False
        types = (self._folder.stored_type(f"{stem}.{values}") for values in ("weight", "weight_packed"))
        return layout not in _VALUES or any(kind in _VALUES[layout] for kind in types)

    def _weight_of(self, stored: str) -> str | None:
        """The weight of the quantised module that a tensor is a part of."""
        for part in dict.fromkeys(part for layout in self._method.layouts for part in _PARTS[layout]):
            weight = f"{stored.removesuffix(part)}weight"
            if stored.endswith(f".{part}") and part in _PARTS.get(self._layout(weight) or "", ()):
                return weight
        return None

    def _parts(self, stored: str) -> dict[str, str]:
        """The tensors of a quantised module by what each is; of another the tensor itself."""
        layout = self._layout(stored)
        if layout is None:
            return {"": stored}
        stem = stored.removesuffix("weight")
        found = {part: self._folder.stored_name(stem + part) for part in _PARTS[layout]}
        return {part: name for part, name in found.items() if name is not None}

    def _is_empty_bias(self, stored: str) -> bool:
        is_bias = stored.endswith(".bias") and self._layout(f"{stored.removesuffix('bias')}weight") is not None
        return is_bias and not self._folder.read(stored).any()

    def _read_grouped(self, name: str) -> Grouped:
        grouped: Grouped = self._checked(name, _GROUPED[str(self._layout(name))])
        return grouped

    def _checked(self, name: str, read: Callable[[Module], Any]) -> Any:
        stem = name.removesuffix(".weight")
        module = Module(
            self._method,
            lambda part: self._folder.read_stored(f"{stem}.{part}"),
            lambda part: self._folder.stored_type(f"{stem}.{part}") is not None,
        )
        try:
            found = read(module)
        except ExportError as error:
            raise type(error)(f"{name}: {error}") from error
        except _DAMAGED as error:
            raise CheckpointError(
                f"{name} is not in the layout that its config.json says: {in_one_line(error)}; download the checkpoint "
                "again"
            ) from error
        return found
