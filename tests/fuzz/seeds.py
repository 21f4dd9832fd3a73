"""The bundles that fuzzing starts from, one a kind: real exports of tiny models, kept in a folder between runs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

KINDS = ("pair", "int8_cache", "eagle", "medusa", "mlp_speculator", "mtp", "row_steps", "session")


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
    if kind in ("eagle", "mtp", "session"):
        target, head, _, _ = random_head(scratch, "deepseek" if kind == "mtp" else "eagle3", byte_tokenizer())
        export_head(out, target, head, LOW_BIT)
        if kind == "session":
            _save_session(out)
        return
    if kind == "row_steps":
        from architectures import config_of
        from tiny_models import save_model

        export_pair(out, save_model(scratch / "target", config_of("Gemma 3")), None)
        return
    target = save_checkpoint(scratch / "target", byte_tokenizer(), spread=0.5)
    if kind in ("pair", "int8_cache"):
        draft = save_checkpoint(scratch / "draft", byte_tokenizer(), spread=0.5, noise=0.15, max_positions=192)
        export_pair(out, target, draft, cache_dtype="int8" if kind == "int8_cache" else "f16")
        return
    tensors, config = tiny_heads.medusa() if kind == "medusa" else tiny_heads.mlp_speculator()
    export_head(out, target, tiny_heads.save_head(scratch / "head", tensors, config), LOW_BIT)


def _save_session(bundle: Path) -> None:
    """Of two cache blocks and a few tokens more, which the head has read too."""
    from pilotfish import Engine

    ids = [index % 7 + 1 for index in range(70)]
    with Engine(bundle, threads=1, num_sequences=2, max_draft_tokens=8, calibration="off") as engine:
        engine.generate(ids, max_new_tokens=2, source="head", num_draft_tokens=2, ignore_eos=True)
        engine.save_session(bundle / "session", ids, note="a note")
