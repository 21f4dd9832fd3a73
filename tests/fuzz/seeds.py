"""The bundles that fuzzing starts from, one a kind: real exports of tiny models, kept in a folder between runs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

KINDS = ("pair", "int8_cache", "eagle", "medusa", "mlp_speculator", "mtp")


def make_seeds(folder: Path) -> dict[str, Path]:
    """Exports what the folder lacks; the bundles by kind."""
    bundles = {kind: folder / kind for kind in KINDS}
    missing = [kind for kind, bundle in bundles.items() if not (bundle / "manifest.json").exists()]
    if missing:
        with tempfile.TemporaryDirectory() as scratch:
            for kind in missing:
                _export(kind, Path(scratch) / kind, bundles[kind])
    return bundles


def _export(kind: str, scratch: Path, out: Path) -> None:
    import tiny_heads
    from head_bundles import LOW_BIT, export_head, random_head
    from tiny_bundles import byte_tokenizer, export_pair, save_checkpoint
    from traced_once import trace_once

    trace_once()
    scratch.mkdir(parents=True)
    if kind in ("eagle", "mtp"):
        target, head, _, _ = random_head(scratch, "eagle3" if kind == "eagle" else "deepseek", byte_tokenizer())
        export_head(out, target, head, LOW_BIT)
        return
    target = save_checkpoint(scratch / "target", byte_tokenizer(), spread=0.5)
    if kind in ("pair", "int8_cache"):
        draft = save_checkpoint(scratch / "draft", byte_tokenizer(), spread=0.5, noise=0.15, max_positions=192)
        export_pair(out, target, draft, cache_dtype="int8" if kind == "int8_cache" else "f16")
        return
    tensors, config = tiny_heads.medusa() if kind == "medusa" else tiny_heads.mlp_speculator()
    export_head(out, target, tiny_heads.save_head(scratch / "head", tensors, config), LOW_BIT)
