"""A tiny target that is exported once, for heads to be exported onto."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import torch
from tiny_models import save_model, tiny_config
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, ModelFormats, NoProgress
from pilotfish.exporter.begun_bundle import BegunBundle
from pilotfish.exporter.head_export import export_head, head_vocabularies
from pilotfish.exporter.heads import open_head, taps_of
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.model_entry import model_entry
from pilotfish.exporter.model_export import export_model

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.manifest import HeadEntry

NUM_LAYERS = 7  # enough for three different EAGLE-3 taps: 2, 3, 4
F32 = ExportOptions(target=ModelFormats("f32", "f32", "f32"), cache_dtype="f32", head_format="f32", parity=False)
IDS = [65, 17, 200, 33, 104, 9, 77, 130, 51, 240, 3, 90]


class HeadTarget:
    """The tiny target, exported once, and what it has at its taps for IDS."""

    def __init__(self, folder: Path, family: str, num_layers: int = NUM_LAYERS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.num_layers = num_layers
        self.folder = save_model(folder / "target", tiny_config(family, num_hidden_layers=num_layers))
        checkpoint = load_checkpoint(str(self.folder))
        self.tokenizer = checkpoint.tokenizer
        self.exported = export_model(
            "target", checkpoint, self.tokenizer, folder, taps=(), options=F32, progress=NoProgress()
        )
        model = AutoModelForCausalLM.from_pretrained(self.folder, attn_implementation="eager")
        streams: list[torch.Tensor] = []
        for module in (*model.model.layers, model.model.norm):
            module.register_forward_pre_hook(lambda _, arguments: streams.append(arguments[0][0]))
        with torch.no_grad():
            self.state = model.model(torch.tensor([IDS])).last_hidden_state[0]
        self.streams = streams
        self.embedding = model.get_input_embeddings().weight.detach()
        self.lm_head = model.get_output_embeddings().weight.detach()


def export_onto(target: HeadTarget, head: Path, out: Path, options: ExportOptions = F32) -> HeadEntry:
    """What an export does with a head once the target is done."""
    out.mkdir()
    shutil.copy(target.exported.weights_path, out)  # what the head shares with it
    checkpoint = open_head(str(head))
    taps_of(checkpoint, target.num_layers)
    entry = model_entry(target.exported, options)
    begun = BegunBundle(target.exported, entry, target.tokenizer, out, options, NoProgress())
    vocabularies = head_vocabularies(options, target.tokenizer, checkpoint, "target", has_draft=False)
    return export_head(checkpoint, begun, vocabularies)[0]
