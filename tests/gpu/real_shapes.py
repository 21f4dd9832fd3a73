"""Passes over several rows in the shapes of models that people run: python tests/gpu/real_shapes.py FOLDER [SHAPE ...]

Random checkpoints in the sizes of published models are exported with the defaults and without the parity check, and the
engine times passes over 1, 4, 8 and 16 rows after 256 tokens, in turns, and plain decoding. It needs torch,
transformers and the installed package; what FOLDER has already is used again. --device cpu runs them on the CPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers
from tiny_models import save_tokenizer

from pilotfish import Engine
from pilotfish.exporter import ExportOptions, export

ROWS = (1, 4, 8, 16)
CONTEXT = 256
TURNS = 4
REPEATS = 15
NEW_TOKENS = 128
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
_COMMON = {"max_position_embeddings": 4096, "tie_word_embeddings": True, **_ENDS}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama-3.2-1B": (
        "LlamaConfig",
        {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 128256,
        },
    ),
    "Gemma-3-1B": (
        "Gemma3TextConfig",
        {
            "hidden_size": 1152,
            "intermediate_size": 6912,
            "num_hidden_layers": 26,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "vocab_size": 262144,
            "sliding_window": 512,
        },
    ),
    "Qwen3-1.7B": (
        "Qwen3Config",
        {
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151936,
        },
    ),
    "Phi-4-mini": (
        "Phi3Config",
        {
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 32,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "vocab_size": 200064,
            "original_max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75},
        },
    ),
    "SmolLM3-3B": (
        "SmolLM3Config",
        {
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "vocab_size": 128256,
        },
    ),
}


def bundle_of(folder: Path, name: str) -> Path:
    """The bundle of a shape, made where it is not there yet."""
    if (folder / "bundle" / "manifest.json").exists():
        return folder / "bundle"
    kind, sizes = SHAPES[name]
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**_COMMON, **sizes))
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data.uniform_(0.8, 1.2)
        else:
            parameter.data.normal_(std=0.02)
    model.to("cpu").save_pretrained(folder / "model")
    torch.set_default_dtype(torch.float32)
    save_tokenizer(folder / "model")
    return export(str(folder / "model"), folder / "bundle", options=ExportOptions(parity=False)).folder


def measure(bundle: Path, name: str, device: str) -> str:
    """The line of a shape."""
    with Engine(bundle, device=device, max_context=1024, max_draft_tokens=max(ROWS) - 1, calibration="off") as engine:
        times: dict[int, list[float]] = {rows: [] for rows in ROWS}
        for turn in range(1 + TURNS):
            for rows in ROWS:
                seconds = engine.time_pass(rows, context=CONTEXT, num_repeats=REPEATS).tolist()
                if turn > 0:  # the first one warms up
                    times[rows] += seconds
        medians = {rows: 1e3 * statistics.median(found) for rows, found in times.items()}
        prompt = list(range(5, 105))
        speeds = [
            engine.generate(prompt, source="plain", max_new_tokens=NEW_TOKENS, ignore_eos=True).stats.tokens_per_second
            for _ in range(3)
        ]
        target = engine.manifest.models[0]
        ratios = "  ".join(f"{rows}: {medians[rows] / medians[1]:.2f}" for rows in ROWS[1:])
        return (
            f"{name:14} {target.num_bytes >> 20:5} MiB, {target.nodes_per_layer} nodes a layer: a pass of one row "
            f"{medians[1]:.3f} ms; of it {ratios}; plain {statistics.median(speeds):.0f} tokens/s"
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), metavar="SHAPE", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if unknown := sorted(set(args.shapes) - set(SHAPES)):
        parser.error(f"{unknown[0]!r} is no shape, allowed are {', '.join(SHAPES)}")
    for name in args.shapes:
        sys.stdout.write(measure(bundle_of(args.folder / name, name), name, args.device) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
