"""Where tensors come from: one at a time, as f32. Safetensors files are here, GGUF files in gguf/."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from .errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from .quantise import Quantised

Array = np.ndarray[Any, np.dtype[Any]]


class WeightSource(Protocol):
    """Tensors of a checkpoint under the names of transformers' state dict."""

    def read(self, name: str) -> Array:
        """A tensor as f32.

        Raises:
            CheckpointError: the checkpoint has no such tensor.
        """

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """The stored integers, if `format_name` holds the checkpoint's blocks exactly; else None."""

    def stored_type(self, name: str) -> str | None:
        """Type of a tensor in the checkpoint, such as BF16 or Q4_1; None if there is no such tensor."""


class SafetensorsSource:
    """A folder with model.safetensors or its sharded form; opened files stay mapped, tensors are read on demand."""

    def __init__(self, folder: Path) -> None:
        index = folder / "model.safetensors.index.json"
        single = folder / "model.safetensors"
        if index.is_file():
            files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        elif single.is_file():
            files = [single.name]
        else:
            raise CheckpointError(f"{folder} has no model.safetensors; save the model with save_pretrained first")
        self._files: dict[str, Any] = {}
        for file in files:
            try:
                opened: Any = safe_open(folder / file, framework="pt")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{folder / file} cannot be read as safetensors: {error}") from error
            self._files.update(dict.fromkeys(opened.keys(), opened))
        self._folder = folder

    def names(self) -> list[str]:
        """Names of all tensors."""
        return sorted(self._files)

    def read(self, name: str) -> Array:
        """A tensor as f32."""
        stored = self._stored_name(name)
        if stored is None:
            raise CheckpointError(f"{self._folder} has no tensor {name}; is the checkpoint complete?")
        tensor: torch.Tensor = self._files[stored].get_tensor(stored)
        return np.asarray(tensor.to(torch.float32).numpy())

    def read_stored(self, name: str) -> Array:
        """A tensor in its own type, where numpy has that; else as f32.

        Raises:
            CheckpointError: there is no such tensor.
        """
        stored = self._stored_name(name)
        if stored is None:
            raise CheckpointError(f"{self._folder} has no tensor {name}; is the checkpoint complete?")
        tensor: torch.Tensor = self._files[stored].get_tensor(stored)
        return np.asarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())

    def read_blocks(self, name: str, format_name: str) -> None:
        """Safetensors hold no blocks."""

    def stored_type(self, name: str) -> str | None:
        """The type's name in the file's header, such as F16 or BF16."""
        stored = self._stored_name(name)
        return None if stored is None else str(self._files[stored].get_slice(stored).get_dtype())

    def _stored_name(self, name: str) -> str | None:
        """The leading 'model.' may be missing in the file, as in checkpoints of a bare decoder."""
        return next((key for key in (name, name.removeprefix("model.")) if key in self._files), None)
