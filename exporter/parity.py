"""TEMP"""
from __future__ import annotations
from dataclasses import dataclass
@dataclass(frozen=True, slots=True)
class Parity:
    kl: float
def check_parity(*a: object) -> Parity: raise NotImplementedError
