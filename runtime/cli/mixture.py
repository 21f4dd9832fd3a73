"""How the commands write which formats the matrices of a model have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe_shares(shares: Mapping[str, float]) -> str:
    """Such as "int4_asym 82%, int8 18%"; one format has no share."""
    if len(shares) == 1:
        return next(iter(shares))
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
