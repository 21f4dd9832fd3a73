"""Writes manifest.json beside the files that it describes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from .bundle import MANIFEST, TOKENIZER, file_entry
from .manifest import Manifest, TokenizerEntry
from .package_versions import package_versions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .manifest import HeadEntry, ModelEntry
    from .tokenizer import TokenizerInfo


def write_manifest(
    folder: Path, tokenizer: TokenizerInfo, models: Mapping[str, ModelEntry], head: HeadEntry | None
) -> Manifest:
    """Writes the manifest of a folder that has its tokenizer and models, and the head if there is one."""
    manifest = Manifest(
        package_versions(),
        _tokenizer_entry(folder, tokenizer),
        tokenizer.chat_template,
        dict(models),
        head,
        tool_template=tokenizer.tool_template,
    )
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _tokenizer_entry(folder: Path, tokenizer: TokenizerInfo) -> TokenizerEntry:
    written = file_entry(folder / TOKENIZER)
    return TokenizerEntry(
        **asdict(written),
        size=tokenizer.size,
        bos_id=tokenizer.bos_id,
        eos_ids=tokenizer.eos_ids,
        pad_id=tokenizer.pad_id,
        add_bos=tokenizer.add_bos,
    )
