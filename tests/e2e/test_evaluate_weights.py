"""`pilotfish evaluate-weights` against what torch and the engine say of the same bundles."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tiny_bundles import byte_tokenizer, save_checkpoint
from transformers import AutoModelForCausalLM

from pilotfish import Engine
from pilotfish.exporter import ExportOptions, FormatChoice, export
from pilotfish.exporter.draft_prompts import PROMPTS

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

READ = [
    f"Page {number} of the book tells that {number + 3} clerks have counted {number * 5} items." for number in range(99)
]
LINES = [f"Entry {number}: the clerk wrote {number * number} into the {number % 7}th column." for number in range(90)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, a text, and bundles of it with exact weights and a draft, and with nearest and calibrated rounding."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("weights")
    target = save_checkpoint(folder / "target", byte_tokenizer(), spread=0.5, max_positions=512)
    draft = save_checkpoint(folder / "draft", byte_tokenizer(), spread=0.5, noise=0.1, max_positions=512)
    for checkpoint in (target, draft):
        _make_layers_matter(checkpoint)
    (folder / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    (folder / "read.txt").write_text("\n".join(READ), encoding="utf-8")
    exact, four_bits = FormatChoice("f32", "f32", "f32"), FormatChoice("int4", "f32", "f32")
    kinds: dict[str, tuple[str | None, dict[str, Any]]] = {
        "exact": (str(draft), {"target": exact, "draft": exact, "draft_vocab": 258}),
        "nearest": (None, {"target": four_bits}),
        "calibrated": (None, {"target": four_bits, "calibration": folder / "read.txt"}),
    }
    for name, (of_draft, options) in kinds.items():
        export(str(target), folder / name, of_draft, options=ExportOptions(parity=False, **options))
    return {path.stem: path for path in folder.iterdir()}


def _make_layers_matter(checkpoint: Path) -> None:
    """As in models that were trained, where a few directions have most of the energy."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    generator = torch.Generator().manual_seed(5)
    for name, weight in model.named_parameters():
        if "proj" in name:
            weight.data *= 6
        if "embed" in name:
            weight.data @= torch.randn(64, 12, generator=generator) @ torch.randn(12, 64, generator=generator) / 12
    model.save_pretrained(checkpoint)


def report_of(cli: CommandLine, made: dict[str, Path], *names: str, options: tuple[Any, ...] = ()) -> dict[str, Any]:
    bundles = [made[name] for name in names]
    arguments = ("--target", made["target"], "--text", made["text"], "--json", "-", *options)
    finished = cli("evaluate-weights", *bundles, *arguments)
    assert finished.exit_code == 0, finished.err
    found: dict[str, Any] = json.loads(finished.out.splitlines()[-1])
    return found


def test_the_numbers_are_those_of_torch_and_the_engine(made: dict[str, Path], cli: CommandLine) -> None:
    report = report_of(cli, made, "exact", "nearest", options=("--tokens", 8192))
    ids = np.array(byte_tokenizer().encode("\n".join(LINES)).ids)
    windows = [ids[start : start + 512] for start in range(0, len(ids) - 511, 512)]
    model = AutoModelForCausalLM.from_pretrained(made["target"])
    with torch.no_grad():
        losses = [float(model(input_ids=(row := torch.tensor(window[None])), labels=row).loss) for window in windows]
    assert report["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    assert report["num_tokens"] == len(windows) * 511
    exact, nearest = report["scores"]
    assert exact["perplexity"] == pytest.approx(report["perplexity"], rel=1e-3)
    assert exact["kl"] < 1e-3 < nearest["kl"]
    assert exact["top1_agreement"] > nearest["top1_agreement"] > 0.3
    assert (exact["mixture"], nearest["mixture"]) == ({"f32": 1.0}, {"int4": 1.0})
    assert exact["bits_per_weight"] > 31
    assert 4.5 < nearest["bits_per_weight"] < exact["bits_per_weight"]
    assert nearest["acceptance"] == []
    drafted = accepted = 0
    with Engine(made["exact"], calibration="off", max_context=512) as engine:
        for prompt in PROMPTS:
            message = [{"role": "user", "content": prompt}]
            stats = engine.chat(message, max_new_tokens=64, source="draft", num_draft_tokens=4).stats
            drafted, accepted = drafted + stats.num_drafted, accepted + stats.num_accepted
    (acceptance,) = exact["acceptance"]
    assert acceptance["source"] == "draft"
    assert acceptance["rate"] == pytest.approx(accepted / drafted)
    assert 1 < acceptance["length"] < 5


def test_calibrated_weights_are_seen_to_be_better(made: dict[str, Path], cli: CommandLine, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report = report_of(cli, made, "nearest", "calibrated", options=("--html", page, "--tokens", 1024))
    nearest, calibrated = report["scores"]
    assert calibrated["kl"] < 0.9 * nearest["kl"]
    assert calibrated["num_bytes"] == nearest["num_bytes"]
    assert report["num_tokens"] == 2 * 511
    assert f"{calibrated['kl']:.4f}" in page.read_text(encoding="utf-8")


def test_charts_become_pictures(made: dict[str, Path], cli: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="pictures need the extra report")
    report_of(cli, made, "nearest", options=("--png", tmp_path, "--tokens", 1024))
    assert all((tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in ("perplexity", "kl"))


def test_the_table_names_what_is_compared(made: dict[str, Path], cli: CommandLine) -> None:
    finished = cli(
        "evaluate-weights", made["exact"], "--target", made["target"], "--text", made["text"], "--tokens", 1024
    )
    assert finished.exit_code == 0, finished.err
    assert f"on 1022 tokens of {made['text']}" in finished.out.replace("\n", "")
    assert "perplexity of the checkpoint's own weights" in finished.out


def test_what_cannot_be_compared(made: dict[str, Path], cli: CommandLine, tmp_path: Path) -> None:
    other = save_checkpoint(tmp_path / "other", byte_tokenizer(), spread=1.0, max_positions=512)
    config = other / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"num_hidden_layers": 2', '"num_hidden_layers": 1'))
    short = tmp_path / "short.txt"
    short.write_text("Not much.")
    for target, text, bundle, message in (
        (other, made["text"], made["nearest"], "is no bundle of other: its layers is 2, not 1"),
        (made["target"], short, made["nearest"], f"text {short} has 9 tokens; give a text of at least 1024"),
        (made["target"], tmp_path / "none.txt", made["nearest"], "cannot be read: No such file"),
        (made["target"], made["text"], tmp_path / "none", "is not a bundle"),
    ):
        finished = cli("evaluate-weights", bundle, "--target", target, "--text", text)
        assert (finished.exit_code, finished.out) == (2, "")
        assert message in finished.err


def test_a_damaged_bundle_is_not_measured(made: dict[str, Path], cli: CommandLine, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(made["nearest"], damaged)
    weights = damaged / "target.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    finished = cli("evaluate-weights", damaged, "--target", made["target"], "--text", made["text"])
    assert (finished.exit_code, finished.out) == (2, "")
    assert "target.bin" in finished.err
    assert "report it" not in finished.err
