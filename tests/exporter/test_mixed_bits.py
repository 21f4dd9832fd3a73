"""`bits`: which matrices get more of them, how many there may be, and that a bit more is a better model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch
from architectures import config_of
from tiny_bundles import byte_tokenizer, save_checkpoint
from tiny_gguf import write_gguf
from tiny_models import save_model, save_random, save_tokenizer, tiny_config
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, FormatChoice, export
from pilotfish.exporter.calibration.mixture import Option, bits_of, spend
from pilotfish.exporter.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from command_line import CommandLine

    from pilotfish.exporter import ExportResult

Type = gguf.GGMLQuantizationType
PLAIN = ExportOptions(target=FormatChoice(None, "f32", "f32"), parity_tokens=192)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [
        f"Entry {number}: {number * number} is what the clerk wrote, {number % 7} times.\n" for number in range(99)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model in which one kind of matrix has rows that 4 bits cannot hold."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("mixed") / "target"
    save_checkpoint(folder, byte_tokenizer(), spread=0.5, max_positions=256)
    model = AutoModelForCausalLM.from_pretrained(folder)
    for name, weight in model.named_parameters():
        if "proj" in name:
            weight.data *= 6  # so that layers matter
        if "o_proj" in name:
            weight.data[:, ::16] *= 12  # an outlier in each block
    model.save_pretrained(folder)
    return str(folder)


def kl(result: ExportResult) -> float:
    """Of the stored weights against the checkpoint's."""
    parity = result.models[0].parity
    assert parity is not None
    return parity.weights_kl


def test_bits_are_given_to_matrices_that_need_them(target: str, text: Path, tmp_path: Path, cli: CommandLine) -> None:
    options = replace(PLAIN, calibration=text)
    without = export(target, tmp_path / "without", options=options)
    found = export(target, tmp_path / "out", options=replace(options, bits=4.75))
    entry = found.manifest.models["target"]
    assert entry.mixture is not None
    spent = sum(share * bits_of(name) for name, share in entry.mixture.items())
    assert 4.5 < spent <= 4.75 + 1e-3
    assert kl(found) < 0.8 * kl(without)
    reason = found.models[0].formats[0].reason
    assert reason.startswith("4.")
    assert str(text) in reason
    shown = cli("info", tmp_path / "out").out
    assert all(name in shown for name in entry.mixture)


def test_all_bits_and_the_fewest(target: str, text: Path, tmp_path: Path) -> None:
    for bits, expected in ((4, {"int4": 1.0}), (8, {"int8": 1.0})):
        options = replace(PLAIN, bits=bits, calibration=text, parity=False)
        found = export(target, tmp_path / str(bits), options=options)
        assert found.manifest.models["target"].mixture == expected
        assert (found.models[0].calibration is None) == (bits == 8)


def test_bits_that_a_file_does_not_leave(tmp_path: Path, text: Path) -> None:
    folder = save_model(tmp_path / "folder", tiny_config("llama"))
    options = replace(PLAIN, tokenizer=str(folder), parity=False, calibration=text, bits=7)
    path = write_gguf(folder, tmp_path / "m.gguf", type_of=lambda name: Type.Q4_0 if "ffn" in name else Type.F16)
    with pytest.raises(OptionError, match=r"bits is 7; the linear layers can have 4\.\.5\.\d+ bits a weight, as 4 of"):
        export(str(path), tmp_path / "out", options=options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 3.9}, r"bits is 3\.9; it must lie in 4\.\.8"),
        ({"bits": 8.01}, r"bits is 8\.01; it must lie in 4\.\.8"),
        ({"bits": float("nan")}, r"bits is nan; it must lie in 4\.\.8"),
        ({"bits": 5, "calibration": None}, "bits is 5, but there is no text to find out by where they matter: calib"),
        (
            {"bits": 5, "target": FormatChoice(linear="int8")},
            "bits is 5 and linear is int8: bits chooses the formats of linear layers; leave one of them out",
        ),
    ],
)
def test_options_that_cannot_be(text: Path, changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ExportOptions(**{"calibration": text} | changes)


def test_bits_are_spent_where_a_bit_gains_most() -> None:
    """Never beyond the budget, and near to the best of all choices."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        options = {}
        for index in range(6):
            size, error = rng.integers(1, 20), rng.exponential()
            pairs = ((4.0, 1.0), (4.5, rng.uniform(0.3, 1.0)), (8.0, 0.003))
            options[(str(index),)] = [Option(str(bits), bits * size, share * error) for bits, share in pairs]
        least = sum(of[0].bits for of in options.values())
        budget = least + rng.uniform(0, 1) * least
        chosen = spend(options, budget)
        assert sum(option.bits for option in chosen.values()) <= budget
        error = sum(option.error for option in chosen.values())
        assert error <= best_error(list(options.values()), budget) + max(of[0].error for of in options.values())


def best_error(options: list[list[Option]], budget: float) -> float:
    """By trying all choices."""
    if not options:
        return 0.0
    rest = (
        option.error + best_error(options[1:], budget - option.bits) for option in options[0] if option.bits <= budget
    )
    return min(rest, default=float("inf"))


@pytest.mark.parametrize("name", ["Gemma 2", "OLMo 2"])
def test_matrices_that_become_one_have_their_bits(name: str, text: Path, tmp_path: Path) -> None:
    """Gate and up, or q, k and v, are apart when they are traced, and one matrix if their formats are alike."""
    checkpoint = save_random(tmp_path / "model", config_of(name))
    save_tokenizer(checkpoint)
    options = replace(PLAIN, calibration=text, parity=False)
    found = export(str(checkpoint), tmp_path / "out", options=replace(options, bits=8))
    entry = found.manifest.models["target"]
    assert entry.mixture == {"int8": 1.0}
