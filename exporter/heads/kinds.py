"""All kinds of heads, by the name that manifests give them."""

from __future__ import annotations

from . import eagle, medusa, mlp_speculator, mtp

# A checkpoint is of the first kind that one of its tensors belongs to.
KINDS = {kind.name: kind for kind in (eagle.THIRD, mlp_speculator.KIND, medusa.KIND, eagle.FIRST, mtp.KIND)}
