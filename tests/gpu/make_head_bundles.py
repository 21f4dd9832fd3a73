"""Writes tiny bundles whose heads often agree with their target, one a kind: make_head_bundles.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

KINDS = ("medusa", "mlp_speculator", "eagle", "eagle3", "deepseek")
SHARED = "medusa_shared"  # heads that all read the target's output layer, of random weights


def make_head_bundle(folder: Path, kind: str) -> Path:
    """Exports the bundle of a kind; it and what it is made of lie in `folder`."""
    import fitted_heads  # torch and transformers, which only the export needs
    import head_bundles
    import tiny_heads
    from tiny_bundles import byte_tokenizer, save_checkpoint

    if kind == SHARED:
        target = save_checkpoint(folder / "target", byte_tokenizer(), spread=0.5)
        head = tiny_heads.save_head(folder / "head", *tiny_heads.medusa(shared_output=True))
        return fitted_heads.export_with(folder / "bundle", target, head, fitted_heads.LOW_BIT)
    if kind not in fitted_heads.KINDS:
        return head_bundles.agreeing_bundle(folder, kind, byte_tokenizer())
    target = save_checkpoint(folder / "target", byte_tokenizer(), spread=0.5)
    head = tiny_heads.save_head(folder / "head", *fitted_heads.fitted_head(kind, fitted_heads.TorchTarget(target)))
    return fitted_heads.export_with(folder / "bundle", target, head, fitted_heads.LOW_BIT)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    for each in (*KINDS, SHARED):
        make_head_bundle(Path(sys.argv[1]) / "parts" / each, each).rename(Path(sys.argv[1]) / each)
