"""The file of a saved session in parts, and put together again with hashes that are right."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

MAGIC = b"pilotfish session 1\n"
_FACTOR, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1


@dataclass
class SessionParts:
    """What native/src/engine/session_file.cpp reads and writes."""

    bundle: bytes
    layout: bytes
    tokens: bytes
    """int32 each."""
    counts: list[int]
    """Tokens that the caches of the target, the draft and the head have."""
    note: bytes
    caches: bytes

    @classmethod
    def parse(cls, data: bytes) -> SessionParts:
        """Of a file that is right."""
        (size,) = struct.unpack_from("<Q", data, len(MAGIC))
        begin = len(MAGIC) + 8 + 64
        header, caches = data[begin : begin + size], data[begin + size : -8]
        texts = []
        at = 0
        for index in range(4):
            if index == 3:
                counts = list(struct.unpack_from("<3i", header, at))
                at += 12
            (length,) = struct.unpack_from("<Q", header, at)
            texts.append(header[at + 8 : at + 8 + length])
            at += 8 + length
        bundle, layout, tokens, note = texts
        return cls(bundle, layout, tokens, counts, note, caches)

    def compose(self) -> bytes:
        """The file."""
        texts = [struct.pack("<Q", len(each)) + each for each in (self.bundle, self.layout, self.tokens, self.note)]
        counts = struct.pack("<3i", *((count + 2**31) % 2**32 - 2**31 for count in self.counts))
        header = b"".join((*texts[:3], counts, texts[3]))
        digest = hashlib.sha256(header).hexdigest().encode()
        prefix = MAGIC + struct.pack("<Q", len(header)) + digest
        return prefix + header + self.caches + struct.pack("<Q", checksum(self.caches))


def checksum(data: bytes) -> int:
    """What native/src/base/checksum.h computes."""
    lanes = list(range(1, 9))
    padded = data + bytes(-len(data) % 64)
    for words in struct.iter_unpack("<8Q", padded):
        mixed = [((lane ^ word) * _FACTOR) & _MASK for lane, word in zip(lanes, words, strict=True)]
        lanes = [(each << 31 | each >> 33) & _MASK for each in mixed]
    total = len(data)
    for lane in lanes:
        total = ((total ^ lane) * _FACTOR) & _MASK
        total ^= total >> 29
    return total
