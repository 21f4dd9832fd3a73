"""Writes a checkpoint's weights, dequantised where they are in blocks, as a folder with f16 safetensors.

python samples/plain_weights.py smollm2 build/smollm2-f16
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.trace import build_on_meta, first_names

if TYPE_CHECKING:
    from pilotfish.exporter.load import Checkpoint


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help="as `pilotfish export` takes it")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    checkpoint = load_checkpoint(given.checkpoint)
    given.folder.mkdir(parents=True, exist_ok=True)
    _write_weights(checkpoint, given.folder)
    _write_configuration(checkpoint, given.folder)
    print(f"wrote {given.folder}")


def _write_weights(checkpoint: Checkpoint, folder: Path) -> None:
    model = build_on_meta(checkpoint.config)
    source = checkpoint.source(model)
    names = sorted(set(first_names(model).values()) & set(source.names()))
    tensors = {name: torch.from_numpy(source.read(name).copy()).half() for name in names}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _write_configuration(checkpoint: Checkpoint, folder: Path) -> None:
    tokenizer = checkpoint.tokenizer
    if tokenizer is None:
        raise SystemExit(f"{checkpoint.id} has no tokenizer")
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": list(tokenizer.eos_ids), "pad_token_id": tokenizer.pad_id}
    config = checkpoint.config.to_dict() | ids
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer.json_text, encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": tokenizer.chat_template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
