"""An adapter's folder, and which tensor of a model each of its tensors changes. Shapes decide if they fit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.pytorch_utils import Conv1D

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError
from pilotfish.exporter.finite import read_finite
from pilotfish.exporter.shards import PLAIN_TYPES, ShardFile
from pilotfish.exporter.tensor_names import text_name

from .settings import AdapterSettings, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from transformers import PreTrainedModel

    Array = np.ndarray[Any, np.dtype[Any]]

_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PARTS = {  # endings of a pair's tensors
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_embedding_A": "embedding_a",
    ".lora_embedding_B": "embedding_b",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
}
_WHOLE = (".weight", ".bias")
_WRAPPERS = (".base_layer", ".modules_to_save")  # that peft puts between a module's name and its tensors
# peft keeps several adapters of a model apart by names such as "default", which its save_pretrained leaves out.
_NAMED = re.compile(
    r"\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector|modules_to_save)"
    r"\.(?!(?:weight|bias)$)([^.]+)(?=\.|$)"
)
_NUM_NAMED = 3


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one tensor of the model, [rows, columns] or [rows]; names are of the adapter's tensors."""

    whole: str | None = None  # what stands in its place
    down: str | None = None  # A, [rank, columns]
    up: str | None = None  # B, [rows, rank]
    magnitude: str | None = None  # of DoRA, [rows]
    scaling: float = 1.0
    is_transposed: bool = False  # the tensor is [columns, rows]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An opened adapter; its tensors stay on disk."""

    id: str  # the folder's name
    path: Path
    settings: AdapterSettings
    file: ShardFile

    def names(self) -> list[str]:
        """Names of all its tensors."""
        return sorted(self.file.names())

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self.file.shape(name)

    def read(self, name: str) -> Array:
        """A tensor as f32."""
        values: Array = self.file.read(name).float().numpy()
        return values

    def read_blocks(self, _name: str, _format_name: str) -> None:
        """It holds no blocks."""

    def stored_type(self, name: str) -> str:
        """Type in the file."""
        return self.file.kind(name)

    def read_finite(self, name: str) -> Array:
        """A tensor as f32.

        Raises:
            CheckpointError: a value of it is no number.
        """
        return read_finite(self, name)

    def changes(self, model: PreTrainedModel, base: str, *, is_text_part: bool) -> dict[str, Change]:
        """What becomes of the tensors of `model`'s state dict that the adapter changes.

        Raises:
            CheckpointError: a tensor that fits nothing of the model, a pair without its other half, or another rank.
            UnsupportedModelError: DoRA of an embedding.
        """
        expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        parts, unknown = self._parts(expected, is_text_part=is_text_part)
        if unknown:
            named = ", ".join(unknown[:_NUM_NAMED]) + (" ..." if len(unknown) > _NUM_NAMED else "")
            raise CheckpointError(
                f"{self.path} has {len(unknown)} tensor(s) that {base} has no place for ({named}); it was made for "
                "another model"
            )
        self._check_complete(expected, parts)
        changes = {name: self._change(name, found, model) for name, found in parts.items()}
        for name, change in changes.items():
            self._check_shapes(name, change, expected[name], base)
        return changes

    def _parts(
        self, expected: dict[str, tuple[int, ...]], *, is_text_part: bool
    ) -> tuple[dict[str, dict[str, str]], list[str]]:
        """Kind -> adapter's tensor, for each tensor of the model; and the adapter's tensors that belong nowhere."""
        parts: dict[str, dict[str, str]] = {}
        unknown = []
        for stored in self.names():
            place = _place(stored, is_text_part=is_text_part)
            if place is None or place[0] not in expected or place[1] in parts.get(place[0], {}):
                unknown.append(stored)
            else:
                parts.setdefault(place[0], {})[place[1]] = stored
        return parts, unknown

    def _check_complete(self, expected: Iterable[str], parts: Iterable[str]) -> None:
        """A module of the model that the configuration names must have tensors."""
        for module in self.settings.modules:
            named, changed = (any(f".{name}".endswith(f".{module}.weight") for name in of) for of in (expected, parts))
            if named and not changed:
                raise CheckpointError(
                    f"{self.path} names {module} in its configuration, but has no tensor of it; download it again"
                )

    def _change(self, name: str, found: dict[str, str], model: PreTrainedModel) -> Change:
        """A pair, a whole tensor, or both: embeddings and output layers are saved whole beside their pairs."""
        module = name.rpartition(".")[0]
        scaling = self.settings.scaling_of(module)
        pair = found.keys() - {"whole"}
        whole, magnitude = found.get("whole"), found.get("magnitude")
        if not pair:
            return Change(whole)
        if pair == {"a", "b", *(("magnitude",) if self.settings.is_dora else ())}:
            is_transposed = isinstance(model.get_submodule(module), Conv1D)
            return Change(whole, found["a"], found["b"], magnitude, scaling, is_transposed)
        if pair == {"embedding_a", "embedding_b"}:  # A is [rank, tokens], B [columns, rank]
            return Change(whole, found["embedding_a"], found["embedding_b"], None, scaling, is_transposed=True)
        if magnitude is not None and "embedding_a" in pair:
            raise UnsupportedModelError(f"{self.path} has a DoRA pair for {name}; of embeddings LoRA is supported")
        kind, listed = "DoRA" if self.settings.is_dora else "LoRA", ", ".join(sorted(found.values()))
        raise CheckpointError(f"{self.path} has {listed} for {name}, which is no {kind} pair")

    def _check_shapes(self, name: str, change: Change, expected: tuple[int, ...], base: str) -> None:
        shapes = [] if change.whole is None else [self.shape(change.whole)]
        if change.down is not None and change.up is not None:
            down, up = self.shape(change.down), self.shape(change.up)
            rank = self.settings.rank_of(name.rpartition(".")[0])
            if len(down) != 2 or len(up) != 2 or not down[0] == up[1] == rank:  # noqa: PLR2004 - matrices
                raise CheckpointError(
                    f"{self.path}: the pair of {name} is {list(down)} and {list(up)}, its configuration makes it of "
                    f"rank {rank:g}; one of them belongs to another adapter"
                )
            rows = up[:1] if change.magnitude is None else self.shape(change.magnitude)
            shapes += [(down[1], *part) if change.is_transposed else (*part, down[1]) for part in (up[:1], rows)]
        for found in shapes:
            if found != expected:
                raise CheckpointError(
                    f"{self.path} changes {name} in the shape {list(found)}, {base} has it as {list(expected)}; the "
                    "adapter was made for another model, or for one with another vocabulary"
                )


def open_adapter(name: str) -> Adapter:
    """Opens the folder of an adapter that peft has saved.

    Raises:
        CheckpointError: it is no such folder, or its file is damaged.
        UnsupportedModelError: a kind of adapter that cannot be merged.
    """
    folder = Path(name)
    if not folder.is_dir():
        raise CheckpointError(f"adapter {name} is not a folder; download it first")
    settings = read_settings(folder)
    if not (folder / _WEIGHTS).is_file():
        raise CheckpointError(f"{folder} has no {_WEIGHTS}; save the adapter with peft's save_pretrained")
    file = ShardFile(folder / _WEIGHTS)
    if not file.names():
        raise CheckpointError(f"{folder / _WEIGHTS} has no tensors; the adapter changes nothing")
    for tensor in file.names():
        if (kind := file.kind(tensor)) not in PLAIN_TYPES:
            raise UnsupportedModelError(f"{folder / _WEIGHTS} has {tensor} in {kind}; save it in F32 or F16")
    named = sorted({found[2] for tensor in file.names() if (found := _NAMED.search(tensor))})
    if len(named) > 1:
        raise CheckpointError(
            f"{folder / _WEIGHTS} has tensors of the adapters {', '.join(named)}; save one of them with peft's "
            "save_pretrained"
        )
    return Adapter(folder.name, folder, settings, file)


def _place(stored: str, *, is_text_part: bool) -> tuple[str, str] | None:
    """The tensor of the model that a tensor of an adapter is about, and as what."""
    if not stored.startswith(_PREFIX):
        return None
    name = _NAMED.sub(r".\1", stored.removeprefix(_PREFIX))
    ending = next((ending for ending in (*_PARTS, *_WHOLE) if name.endswith(ending)), None)
    if ending is None:
        return None
    module = name.removesuffix(ending)
    if ending in _PARTS:
        kind, parameter = _PARTS[ending], f"{module}.weight"
    else:
        for wrapper in _WRAPPERS:
            module = module.removesuffix(wrapper)
        kind, parameter = "whole", module + ending
    plain = text_name(parameter) if is_text_part else parameter
    return None if plain is None else (plain, kind)
