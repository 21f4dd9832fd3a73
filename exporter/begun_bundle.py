"""A bundle whose target is written, to which a draft and a head are added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .manifest import ModelEntry
    from .model_export import ExportedModel
    from .options import ExportOptions
    from .progress import Progress
    from .tokenizer import TokenizerInfo


@dataclass(frozen=True, slots=True)
class BegunBundle:
    """What whoever adds to it needs to know."""

    target: ExportedModel
    target_entry: ModelEntry
    tokenizer: TokenizerInfo
    folder: Path
    options: ExportOptions
    progress: Progress
