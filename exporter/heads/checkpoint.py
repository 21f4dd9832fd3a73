"""A published head on disk: its configuration and tensors, and which kind its tensor names show it to be."""

from __future__ import annotations

import json
import pickle
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError
from pilotfish.exporter.shards import INDEX, read_index

from . import mtp
from .config_check import check_head
from .kinds import KINDS
from .speculators import as_eagle3, is_speculators

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .head_kind import HeadKind

_FILES = ("model.safetensors", *(name for kind in KINDS.values() for name in kind.files), "pytorch_model.bin")
_HUB_FILES = ["*.json", "*.safetensors", "*.pt", "*.bin", "README.md"]
_SCALE, _OFFSET = "_scale", "_offset"  # of a quantised weight
_PREFIXES = (*(kind.prefix for kind in KINDS.values() if kind.prefix), "model.")
_OWN_FILES = [kind for kind in KINDS.values() if kind is not mtp.KIND]  # whose checkpoints are no target's


@dataclass(frozen=True, slots=True)
class HeadCheckpoint:
    """A head's checkpoint; tensors stay on disk until they are read where the file's format allows it."""

    id: str
    kind: str  # a key of KINDS
    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]

    def setting(self, name: str, default: Any = None) -> Any:
        """A value of config.json.

        Raises:
            CheckpointError: it is missing and has no default.
        """
        value = self.config.get(name, default)
        if value is None:
            raise CheckpointError(f"{self.id}: config.json lacks {name}, which a {self.kind} head needs")
        return value

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """A tensor of exactly this shape.

        Raises:
            CheckpointError: it is missing or has another shape.
        """
        if name not in self.tensors:
            raise CheckpointError(f"{self.id} has no tensor {name}, which a {self.kind} head needs")
        found = tuple(self.tensors[name].shape)
        if found != shape:
            raise CheckpointError(f"{self.id}: tensor {name} is {list(found)}, expected {list(shape)}")
        return self.tensors[name]

    def refuse_others(self, known: set[str]) -> None:
        """Refuses tensors that no part of the head reads: it would be another computation.

        Raises:
            UnsupportedModelError: there are some.
        """
        others = sorted(self.tensors.keys() - known)
        if others:
            raise UnsupportedModelError(
                f"{self.id} has {len(others)} tensors that a {self.kind} head of this exporter does not use, such as "
                f"{others[0]}; this variant is not supported"
            )


def open_head(name: str) -> HeadCheckpoint:
    """Opens a folder or hub id: a head's, or a target's that has multi-token prediction layers.

    Raises:
        CheckpointError: no such folder or id, no weights, or a file that cannot be read.
            Or a configuration that its tensors contradict.
        UnsupportedModelError: tensors of no known kind of head.
    """
    folder = Path(name) if Path(name).exists() else _download(name)
    config = _config(folder)
    tensors = _with_scales_applied(_tensors(folder), name)
    kind: HeadKind | None = mtp.KIND
    if not mtp.prefixes_of(tensors):
        tensors = _without_prefix(tensors)
        if is_speculators(config):
            config, tensors = as_eagle3(config, tensors, name)
        kind = next((kind for kind in _OWN_FILES if any(map(kind.tensor.match, tensors))), None)
    if kind is None:
        known = ", ".join(kind.name for kind in _OWN_FILES)
        raise UnsupportedModelError(
            f"{name} is no head of a known layout ({known}) and has no MTP layer: it has tensors such as {min(tensors)}"
        )
    checkpoint = HeadCheckpoint(folder.name if folder == Path(name) else name, kind.name, config, tensors)
    check_head(checkpoint)
    return checkpoint


def _download(name: str) -> Path:
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise CheckpointError(f"head {name} does not exist")
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(f"head {name} is neither a folder nor on a hub that can be reached") from error


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return config


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors; of a target with MTP layers these alone, as it may have many gigabytes of others."""
    index = folder / INDEX
    if index.is_file():
        files = read_index(index)
    else:
        found = [name for name in _FILES if (folder / name).is_file()][:1]
        files = {tensor: name for name in found for tensor in _names(folder / name)}
        if not found:
            raise CheckpointError(f"{folder} has no weights; expected one of {', '.join(_FILES)}")
        if not files:
            raise CheckpointError(f"{folder / found[0]} holds no tensor")
    prefixes = mtp.prefixes_of(files)
    wanted = {tensor: name for tensor, name in files.items() if not prefixes or tensor.startswith(prefixes)}
    tensors: dict[str, torch.Tensor] = {}
    for name in sorted(set(wanted.values())):
        tensors.update(_read(folder / name, {tensor for tensor, file in wanted.items() if file == name}))
    return tensors


def _names(path: Path) -> list[str]:
    with _reading(path):
        if path.suffix != ".safetensors":
            return list(_unpickled(path))
        with safe_open(path, framework="pt") as file:
            return list(file.keys())


def _read(path: Path, names: set[str]) -> dict[str, torch.Tensor]:
    with _reading(path):
        if path.suffix != ".safetensors":
            return {name: tensor for name, tensor in _unpickled(path).items() if name in names}
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in names}


def _unpickled(path: Path) -> dict[str, torch.Tensor]:
    loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if not isinstance(loaded, dict) or not all(isinstance(item, torch.Tensor) for item in loaded.values()):
        raise CheckpointError(f"{path} is not a table of tensors")
    return loaded


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} cannot be read as tensors alone: {str(error).splitlines()[0]}") from error


def _with_scales_applied(tensors: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    """Multiplies X by X_scale, each of whose columns counts for a group of X's: 8-bit weights of compressed-tensors.

    Where there is an X_offset too, X has 4-bit codes, two a byte with the first in the lower half, and the weight is
    scale * code + offset: what samples/pack_head.py writes.

    Raises:
        CheckpointError: columns that do not divide.
    """
    plain = {key: tensor for key, tensor in tensors.items() if not key.endswith((_SCALE, _OFFSET))}
    for key, scale in tensors.items():
        weight = key.removesuffix(_SCALE)
        if not key.endswith(_SCALE) or weight not in plain:
            continue
        codes, offset = plain[weight], tensors.get(weight + _OFFSET)
        if codes.ndim != 2 or (offset is not None and codes.dtype != torch.uint8):  # noqa: PLR2004
            found = f"{str(codes.dtype).removeprefix('torch.')} {list(codes.shape)}"
            raise CheckpointError(f"{name}: {weight} is {found}, but {key} beside it stands for a matrix of codes")
        if offset is not None:
            codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)
        if scale.ndim != 2 or len(scale) != len(codes) or codes.shape[1] % scale.shape[1]:  # noqa: PLR2004
            raise CheckpointError(f"{name}: {key} is {list(scale.shape)}, which does not divide {list(codes.shape)}")
        groups = codes.float().reshape(len(codes), scale.shape[1], -1) * scale.float()[..., None]
        if offset is not None:
            if offset.shape != scale.shape:
                shapes = f"{list(offset.shape)}, its scale {list(scale.shape)}"
                raise CheckpointError(f"{name}: {weight}{_OFFSET} is {shapes}")
            groups = groups + offset.float()[..., None]
        plain[weight] = groups.flatten(1)
    return plain


def _without_prefix(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors
