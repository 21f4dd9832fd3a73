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
        """Names of all tensors in the files."""
        return self._folder.names()

    def _is_quantised(self, name: str) -> bool:
        stem, _, kind = name.rpartition(".")
        if kind != "weight":
            return False
        marks = _FP8_MARKS if self._method.layout == "fp8" else (_MARK[self._method.layout],)
        return any(self._folder.stored_type(f"{stem}.{mark}") is not None for mark in marks)

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
