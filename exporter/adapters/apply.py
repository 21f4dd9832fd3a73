"""A checkpoint with adapters: which checkpoints can have some, and what is said about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from pilotfish.exporter.errors import UnsupportedModelError

from .adapter import open_adapter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.exporter.load import Checkpoint
    from pilotfish.exporter.progress import Progress


def with_adapters(checkpoint: Checkpoint, folders: Sequence[str], progress: Progress) -> Checkpoint:
    """The checkpoint with the adapters of these folders merged into it, one after the other.

    Raises:
        CheckpointError: a folder is not an adapter's, or damaged.
        UnsupportedModelError: another kind of adapter than LoRA, or a base whose weights are quantised already.
    """
    if not folders:
        return checkpoint
    if checkpoint.path.is_file() or checkpoint.prequantised is not None:
        kind = "a GGUF file" if checkpoint.path.is_file() else "quantised already"
        raise UnsupportedModelError(
            f"{checkpoint.id} is {kind}, and an adapter is merged before anything is quantised; give the folder with "
            "safetensors that the adapter was made for"
        )
    adapters = tuple(open_adapter(folder) for folder in folders)
    for adapter in adapters:
        base = adapter.settings.base
        if base is not None and PurePath(base).name != PurePath(checkpoint.id).name:
            progress.note(f"{adapter.path} names {base} as its base, and is merged into {checkpoint.id}")
    return replace(checkpoint, sha256=None, adapters=adapters)
