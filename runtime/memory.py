"""Bytes: as users write them, as tables show them, and this process's peak."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from pilotfish.bindings import InvalidArgumentError
from pilotfish.bindings.operating_system import process_memory

from .option_checks import shown

if TYPE_CHECKING:
    from .manifest import Manifest

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
MOST_BYTES = 2**64 - 1
MEMORY_PARTS = {
    "target weights": "target_weight_bytes",
    "draft weights": "draft_weight_bytes",
    "target cache": "target_cache_bytes",
    "draft cache": "draft_cache_bytes",
    "head weights": "head_weight_bytes",
    "head cache": "head_cache_bytes",
    "activations and logits": "activation_bytes",
    "lookup": "lookup_bytes",
    "runtime": "runtime_bytes",
    "program": "program_bytes",
}
"""What takes memory, as tables name it, and its field of EngineInfo."""
_TOKENIZER_BASE = 4 << 20
_TOKENIZER_RATE = 12  # bytes for each of tokenizer.json
_BYTES = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([A-Za-z]*)\s*")


def parse_bytes(size: int | str) -> int:
    """Bytes of 6442450944, "6GiB" or "6.5 GB"; InvalidArgumentError for anything else, or not in 1..2^64 - 1."""
    is_size = isinstance(size, (int, str)) and not isinstance(size, bool)
    match = _BYTES.fullmatch(str(min(size, MOST_BYTES + 1) if isinstance(size, int) else size)) if is_size else None
    unit = match and _UNITS.get(match[2].upper())
    num_bytes = int(Fraction(match[1]) * unit) if match and unit else 0
    if not 0 < num_bytes <= MOST_BYTES:
        raise InvalidArgumentError(
            f"memory size is {shown(size)}, must be a number of bytes above 0 and below 2^64, with an optional unit "
            "such as MiB, GiB, MB or GB"
        )
    return num_bytes


def format_bytes(num_bytes: int) -> str:
    """Bytes in the binary unit that leaves at least one digit before the point."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} B"


def program_bytes(manifest: Manifest) -> int:
    """What this process takes beside the library: what it holds already, and its tokenizer."""
    return resident_memory_bytes() + _TOKENIZER_BASE + _TOKENIZER_RATE * manifest.tokenizer.num_bytes


def peak_memory_bytes() -> int:
    """Largest resident set of this process so far."""
    return process_memory().peak


def resident_memory_bytes() -> int:
    """Resident set of this process now."""
    return process_memory().now
