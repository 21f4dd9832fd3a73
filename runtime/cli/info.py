"""``pilotfish info``: what a bundle holds, without loading it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pilotfish.runtime.manifest import HeadEntry, ModelEntry, read_manifest
from pilotfish.runtime.memory import format_bytes

from .arguments import Bundle, Json
from .console import out, show, table, write_json
from .draft_trials import show_kept_trials
from .mixture import describe_shares


def _formats(model: ModelEntry) -> dict[str, str]:
    """By part; linear layers may have several."""
    linear = f"({describe_shares(model.mixture)})" if len(model.mixture) > 1 else model.formats.get("linear", "")
    return {**model.formats, "linear": linear}


_ROWS: dict[str, Callable[[ModelEntry], str]] = {
    "source": lambda model: model.source,
    "architecture": lambda model: model.architecture,
    "parameters": lambda model: f"{model.parameters / 1e6:.1f} M",
    "layers": lambda model: str(model.num_layers),
    "nodes a layer": lambda model: str(model.nodes_per_layer),
    "hidden size": lambda model: str(model.hidden_size),
    "vocabulary": lambda model: str(model.vocab_size),
    "longest context": lambda model: str(model.max_positions),
    "formats": lambda model: ", ".join(f"{part} {name}" for part, name in _formats(model).items()),
    "size": lambda model: format_bytes(model.num_bytes),
}


def _describe(head: HeadEntry) -> str:
    depth = f"{head.num_predictions} tokens deep" if head.num_predictions else "as deep as asked"
    return (
        f"head: {head.kind} from {head.source}, {head.parameters / 1e6:.1f} M parameters in {head.format}, "
        f"{format_bytes(head.num_bytes)}, {depth}, {head.num_logits} ids, reads the streams into layers "
        f"{', '.join(map(str, head.taps))}"
    )


def info(bundle: Bundle, json_file: Json = None) -> None:
    """Show what a bundle holds."""
    manifest = read_manifest(bundle)
    header = ("", *(model.role for model in manifest.models))
    rows = [(name, *(value(model) for model in manifest.models)) for name, value in _ROWS.items()]
    out().print(table(bundle, header, rows, align="left"))
    for model in manifest.models:
        if model.operators:
            show(f"{model.role}: ONNX Runtime runs {', '.join(model.operators)}")
        for reason in model.unfused:
            show(f"{model.role}: not fused: {reason}")
    if manifest.head:
        show(_describe(manifest.head))
    show_kept_trials(manifest, bundle)
    tokenizer = manifest.tokenizer
    show(f"tokenizer: {tokenizer.size} tokens, end of text {', '.join(map(str, tokenizer.eos_ids))}")
    show(f"chat template: {'yes' if manifest.chat_template else 'no'}")
    show("created by: " + ", ".join(f"{name} {version}" for name, version in manifest.created_by.items()))
    write_json(json_file, dataclasses.asdict(manifest) | {"path": bundle})
