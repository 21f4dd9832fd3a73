"""A folder with quantised matrices as a source of tensors: their integers where a format holds them, else floats."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.errors import CheckpointError

from . import layouts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotfish.exporter.quantise import Quantised
    from pilotfish.exporter.sources import SafetensorsSource

    from .groups import Grouped
    from .method import Method

Array = np.ndarray[Any, np.dtype[Any]]
_GROUPED: dict[str, Callable[..., Grouped]] = {
    "gptq": layouts.gptq,
    "awq": layouts.awq,
    "packed": layouts.packed,
    "integers": layouts.integers,
}
_MARK = {  # the tensor that a quantised module has
    "gptq": "qweight",
    "awq": "qweight",
    "packed": "weight_packed",
    "integers": "weight_scale",
    "nf4": "weight.quant_map",
}
_FP8_MARKS = ("weight_scale_inv", "weight_scale")
_ACTIVATIONS = ("input_scale", "input_zero_point")  # which a bundle rounds in its own way
_PARTS = {  # the tensors that a quantised module may have in place of its weight
    "gptq": ("qweight", "qzeros", "scales", "g_idx"),
    "awq": ("qweight", "qzeros", "scales"),
    "packed": ("weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx", *_ACTIVATIONS),
    "integers": ("weight", "weight_scale", "weight_zero_point", *_ACTIVATIONS),
    "fp8": ("weight", *_FP8_MARKS, *_ACTIVATIONS),
    "nf4": (
        "weight",
        *(f"weight.{part}" for part in ("absmax", "quant_map", "nested_absmax", "nested_quant_map")),
        "weight.quant_state.bitsandbytes__nf4",
    ),
}


class PrequantisedSource:
    """Modules that the folder has not quantised are read as they are."""

    def __init__(self, folder: SafetensorsSource, method: Method) -> None:
        self._folder, self._method = folder, method
        self._grouped = lru_cache(maxsize=3)(self._read_grouped)  # type, blocks and floats of one are asked in turn

    def read(self, name: str) -> Array:
        """A tensor as f32."""
        if not self._is_quantised(name):
            return self._folder.read(name)
        if self._method.layout in _GROUPED:
            return self._grouped(name).dequantise()
        tensor: Array = self._checked(name, getattr(layouts, self._method.layout))
        return tensor

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """The published integers, if the format holds them; scales are rounded to f16 where they are not in f16."""
        if not self._is_quantised(name) or self._method.layout not in _GROUPED:
            return None
        return self._grouped(name).blocks(format_name)

    def stored_type(self, name: str) -> str | None:
        """A name that `formats` knows, such as "W4", "FP8" or "NF4"; that of the file for what is not quantised."""
        if not self._is_quantised(name):
            return self._folder.stored_type(name)
        return self._grouped(name).kind() if self._method.layout in _GROUPED else self._method.layout.upper()

    def names(self) -> list[str]:
        """The tensors of a quantised module are one, its weight; a bias of zeros, which GPTQ's tools add, is none."""
        found = {self._weight_of(name) or name for name in self._folder.names()}
        return sorted(name for name in found if not self._is_empty_bias(name))

    def stored_name(self, name: str) -> str | None:
        """Of a quantised module the name of the weight that it would have."""
        mark = self._mark(name)
        if mark is None:
            return self._folder.stored_name(name)
        stored = self._folder.stored_name(mark)
        return None if stored is None else name[mark.index(stored) :]

    def shape(self, stored: str) -> tuple[int, ...]:
        """Of a quantised module that of the matrix."""
        if not self._is_quantised(stored):
            return self._folder.shape(stored)
        shape: tuple[int, ...] = self._checked(stored, lambda tensor, _: layouts.shape(self._method, tensor))
        return shape

    def equal(self, stored: str, other: str) -> bool:
        """Of quantised modules whether they have the same parts and these are equal."""
        mine, theirs = self._parts(stored), self._parts(other)
        return mine.keys() == theirs.keys() and all(self._folder.equal(mine[part], theirs[part]) for part in mine)

    def packed_type(self, stored: str) -> str | None:
        """Of a tensor beside the quantised modules, as a plain folder has it."""
        return None if self._is_quantised(stored) else self._folder.packed_type(stored)

    def _is_quantised(self, name: str) -> bool:
        return self._mark(name) is not None

    def _mark(self, name: str) -> str | None:
        """The tensor that shows a weight to be quantised."""
        stem, _, kind = name.rpartition(".")
        if kind != "weight":
            return None
        marks = _FP8_MARKS if self._method.layout == "fp8" else (_MARK[self._method.layout],)
        names = (f"{stem}.{mark}" for mark in marks)
        return next((mark for mark in names if self._folder.stored_name(mark) is not None), None)

    def _weight_of(self, stored: str) -> str | None:
        """The weight of the quantised module that a tensor is a part of."""
        for part in _PARTS[self._method.layout]:
            weight = f"{stored.removesuffix(part)}weight"
            if stored.endswith(f".{part}") and self._is_quantised(weight):
                return weight
        return None

    def _parts(self, stored: str) -> dict[str, str]:
        """The tensors of a quantised module by what each is; of another the tensor itself."""
        if not self._is_quantised(stored):
            return {"": stored}
        stem = stored.removesuffix("weight")
        found = {part: self._folder.stored_name(stem + part) for part in _PARTS[self._method.layout]}
        return {part: name for part, name in found.items() if name is not None}

    def _is_empty_bias(self, stored: str) -> bool:
        is_bias = stored.endswith(".bias") and self._is_quantised(f"{stored.removesuffix('bias')}weight")
        return is_bias and not self._folder.read(stored).any()

    def _read_grouped(self, name: str) -> Grouped:
        layout = _GROUPED[self._method.layout]
        grouped: Grouped = self._checked(name, lambda tensor, has: layout(tensor, has, self._method))
        return grouped

    def _checked(self, name: str, read: Callable[..., Any]) -> Any:
        stem = name.removesuffix(".weight")
        try:
            found = read(
                lambda part: self._folder.read_stored(f"{stem}.{part}"),
                lambda part: self._folder.stored_type(f"{stem}.{part}") is not None,
            )
        except CheckpointError as error:
            raise CheckpointError(f"{name}: {error}") from error
        except (ValueError, IndexError, KeyError) as error:
            raise CheckpointError(f"{name} is not in the layout that its config.json says: {error}") from error
        return found
