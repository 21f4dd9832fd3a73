"""GGUF files as they are: all parts of a split file, metadata as a configuration, tokenizer, and blocks.

Everything here reads the bytes itself; `reference` alone does it by the gguf package, for the parity check.
"""

from .config import read_config
from .file import GgufFile, open_gguf
from .reference import GgufReference
from .source import GgufSource
from .tokenizer import build_tokenizer, stop_ids

__all__ = [
    "GgufFile",
    "GgufReference",
    "GgufSource",
    "build_tokenizer",
    "open_gguf",
    "read_config",
    "stop_ids",
]
