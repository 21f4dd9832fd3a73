"""Writes a tiny f16 bundle of each architecture of the table: make_architecture_bundles.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path


def folder_name(name: str) -> str:
    """Of an architecture's bundle: its name in letters, digits and dashes."""
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in name).split())


def make_architecture_bundle(folder: Path, name: str) -> Path:
    """Exports the bundle of an architecture; it and its checkpoint lie in `folder`."""
    from architectures import config_of  # torch and transformers, which only the export needs
    from tiny_models import save_random, save_tokenizer

    from pilotfish.exporter import ExportOptions, ModelFormats, export

    checkpoint = save_random(folder / "model", config_of(name), is_whole=name.endswith(", text"))
    save_tokenizer(checkpoint)
    options = ExportOptions(target=ModelFormats("f16", "f16", "f16"), cache_dtype="f16", parity=False)
    return export(str(checkpoint), folder / "bundle", options=options).folder


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from architectures import ARCHITECTURES

    for each in ARCHITECTURES:
        target = Path(sys.argv[1]) / folder_name(each)
        make_architecture_bundle(Path(sys.argv[1]) / "parts" / folder_name(each), each).rename(target)
