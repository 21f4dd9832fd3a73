"""Bundles that were exported beforehand: the environment with the oldest versions has no exporter.

``python tests/prepared_bundles.py OUT`` makes them; PILOTFISH_PREPARED_BUNDLES names the folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "PILOTFISH_PREPARED_BUNDLES"
HEADS = ("medusa", "mlp_speculator", "eagle", "eagle3", "qwen3_next")  # the last is a multi-token prediction layer


def prepared(name: str) -> Path | None:
    """A bundle or folder of that name, where they were made beforehand."""
    folder = os.environ.get(VARIABLE)
    return None if folder is None else Path(folder) / name


def save_checkpoints(folder: Path) -> dict[str, Path]:
    """Folders of the tiny checkpoints: byte vocabulary ("target", "draft") and a toy one ("toy", "toy_draft")."""
    from tiny_bundles import byte_tokenizer, save_checkpoint, toy_tokenizer

    return {
        "target": save_checkpoint(folder / "target", byte_tokenizer(), spread=0.5),
        "draft": save_checkpoint(folder / "draft", byte_tokenizer(), spread=0.5, noise=0.15, max_positions=192),
        "toy": save_checkpoint(folder / "toy", toy_tokenizer(10), spread=0.15),
        "toy_draft": save_checkpoint(folder / "toy_draft", toy_tokenizer(10), spread=0.15, noise=0.6),
    }


def export_named(name: str, out: Path, checkpoints: dict[str, Path]) -> Path:
    """One of the pairs that tests share."""
    from tiny_bundles import export_pair

    target, draft = checkpoints["target"], checkpoints["draft"]
    if name == "plain":
        return export_pair(out, target, None)
    if name == "self":
        return export_pair(out, target, target)
    if name == "toy":
        return export_pair(out, checkpoints["toy"], checkpoints["toy_draft"], linear="f32", rest="f32")
    return export_pair(out, target, draft, cache_dtype="f16" if name == "tiny" else name)


def export_heads(out: Path, checkpoints: dict[str, Path]) -> Path:
    """A folder of bundles, one for each kind of head."""
    import tiny_heads
    from head_bundles import LOW_BIT, export_head, random_head
    from tiny_bundles import byte_tokenizer

    for kind in HEADS:
        if kind in ("medusa", "mlp_speculator"):
            target = checkpoints["target"]
            made = tiny_heads.medusa(shared_output=True) if kind == "medusa" else tiny_heads.mlp_speculator()
            head = tiny_heads.save_head(out / "checkpoints" / kind, *made)
        else:
            target, head, _, _ = random_head(out / "checkpoints" / kind, kind, byte_tokenizer())
        export_head(out / kind, target, head, LOW_BIT)
    return out


def export_row_wise(plain: Path, out: Path) -> Path:
    """The plain bundle with further nodes that change nothing."""
    from hostile_bundles import copy_with_graph, edited, row_wise

    return copy_with_graph(plain, out, edited(row_wise))


def main() -> None:
    """Makes all, once."""
    from hostile_bundles import forge

    out = Path(sys.argv[1])
    if (out / "done").exists():
        return
    checkpoints = save_checkpoints(out / "checkpoints")
    for name in ("tiny", "plain", "self", "toy", "f32", "int8"):
        export_named(name, out / name, checkpoints)
    export_heads(out / "heads", checkpoints)
    export_row_wise(out / "plain", out / "row_wise")
    forge(out / "plain", out / "hostile")
    (out / "done").touch()


if __name__ == "__main__":
    main()
