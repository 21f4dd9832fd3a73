"""LoRA adapters in peft's layout: read, matched with a model, and merged into its weights as these are read."""

from .adapter import Adapter, open_adapter
from .apply import with_adapters
from .source import AdaptedSource

__all__ = ["AdaptedSource", "Adapter", "open_adapter", "with_adapters"]
