"""Exports with `calibration`: what a text does to 4-bit matrices of folders and GGUF files, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
import torch
from architectures import config_of
from tiny_bundles import byte_tokenizer, save_checkpoint
from tiny_gguf import write_gguf
from tiny_models import save_model, tiny_config
from transformers import AutoModel, AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, FormatChoice, export
from pilotfish.exporter.calibration import CalibratedBlocks, forward, read_windows
from pilotfish.exporter.calibration.rounding import Rounded
from pilotfish.exporter.errors import CheckpointError, OptionError, UnsupportedModelError
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.quantise import quantise

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

    from pilotfish.exporter import ExportResult
    from pilotfish.exporter.calibration.inputs import Inputs

Type = gguf.GGMLQuantizationType
WORDS = ("the", "clerk", "wrote", "a", "number", "into", "each", "column", "and", "asked", "who", "had", "left", "it")
NEAREST = ExportOptions(target=FormatChoice(None, "f32", "f32"), parity_tokens=192)


class Notes:
    """Progress that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.counts: dict[str, list[int]] = {}
        self._stage = ""

    def stage(self, name: str, total: int) -> None:
        self._stage = name
        self.counts[name] = [total, 0]

    def advance(self, steps: int = 1) -> None:
        self.counts[self._stage][1] += steps

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finish(self) -> None:
        pass


def write_text(path: Path, num_characters: int) -> Path:
    """Words in an order that does not repeat."""
    rng = np.random.default_rng(1)
    path.write_text("".join(f"{rng.choice(WORDS)} " for _ in range(num_characters))[:num_characters], encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt", 6000)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("calibrated") / "target"
    save_checkpoint(folder, byte_tokenizer(), spread=0.5, max_positions=256)
    model = AutoModelForCausalLM.from_pretrained(folder)
    generator = torch.Generator().manual_seed(5)
    for name, weight in model.named_parameters():
        if "proj" in name:
            weight.data *= 6  # so that layers matter
        if "embed" in name:  # a few directions have most of the energy, as in models that were trained
            weight.data @= torch.randn(64, 12, generator=generator) @ torch.randn(12, 64, generator=generator) / 12
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def nearest(target: str, tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    return export(target, tmp_path_factory.mktemp("nearest") / "out", options=NEAREST)


def kl(result: ExportResult) -> float:
    """Of the stored weights against the checkpoint's, on a text that no calibration reads."""
    parity = result.models[0].parity
    assert parity is not None
    return parity.weights_kl


def test_calibrated_weights_are_nearer_to_the_checkpoints(
    target: str, nearest: ExportResult, text: Path, tmp_path: Path
) -> None:
    progress = Notes()
    found = export(target, tmp_path / "out", options=replace(NEAREST, calibration=text), progress=progress)
    assert kl(found) < 0.8 * kl(nearest)
    calibration = found.models[0].calibration
    assert calibration is not None
    assert (calibration.num_matrices + calibration.num_nearest, calibration.num_kept) == (14, 0)
    assert calibration.num_matrices >= 12
    assert (calibration.text, calibration.num_tokens) == (str(text), 5888)
    assert calibration.held.calibrated < 0.8 * calibration.held.nearest
    assert all(total == done for total, done in progress.counts.values())
    assert (tmp_path / "out" / "target.bin").stat().st_size == (nearest.folder / "target.bin").stat().st_size
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {path.name for path in nearest.folder.iterdir()}  # nothing of the calibration is left
    assert nearest.models[0].calibration is None


def test_the_same_text_gives_the_same_bytes(target: str, text: Path, tmp_path: Path) -> None:
    quick = replace(NEAREST, calibration=text, parity=False)
    first, second = (export(target, tmp_path / name, options=quick) for name in ("first", "second"))
    assert (first.folder / "target.bin").read_bytes() == (second.folder / "target.bin").read_bytes()


@pytest.mark.parametrize("num_characters", [1024, 1500, 2500])
def test_a_short_text_makes_nothing_worse(
    target: str, nearest: ExportResult, tmp_path: Path, num_characters: int
) -> None:
    """At 1024 tokens 768 are read, of no more than twenty kinds: many correlations are chance."""
    short = write_text(tmp_path / "short.txt", num_characters)
    found = export(target, tmp_path / "out", options=replace(NEAREST, calibration=short))
    assert kl(found) < kl(nearest)


def test_where_a_text_shows_no_gain_nearest_rounding_stays(
    target: str, nearest: ExportResult, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(rows: np.ndarray, _inputs: Inputs, format_name: str) -> Rounded:
        return Rounded(quantise(rows * 1.2, format_name), quantise(rows, format_name))

    monkeypatch.setattr(forward, "round_rows", spoilt)
    progress = Notes()
    found = export(target, tmp_path / "out", options=replace(NEAREST, calibration=text), progress=progress)
    assert (found.folder / "target.bin").read_bytes() == (nearest.folder / "target.bin").read_bytes()
    calibration = found.models[0].calibration
    assert calibration is not None
    assert (calibration.num_matrices, calibration.num_nearest) == (0, 14)
    assert any("gains nothing where it was not read" in note for note in progress.notes)


def test_an_output_layer_of_four_bits_is_calibrated_too(target: str, text: Path, tmp_path: Path) -> None:
    options = replace(NEAREST, target=FormatChoice("int8", "f32", "int4"))
    before = export(target, tmp_path / "nearest", options=options)
    found = export(target, tmp_path / "out", options=replace(options, calibration=text))
    calibration = found.models[0].calibration
    assert calibration is not None
    assert calibration.num_matrices == 1
    assert kl(found) < 0.9 * kl(before)


def test_transposed_and_fused_matrices(tmp_path: Path, text: Path) -> None:
    """GPT-2 has its matrices the other way round, and q, k and v in one."""
    folder = save_model(tmp_path / "gpt2", config_of("GPT-2"))
    options = replace(NEAREST, target=FormatChoice("int4_asym", "f32", "f32"))
    before = export(str(folder), tmp_path / "nearest", options=options)
    found = export(str(folder), tmp_path / "out", options=replace(options, calibration=text))
    assert kl(found) < kl(before)


def test_a_gguf_file_of_plain_numbers(tmp_path: Path, text: Path) -> None:
    folder = save_model(tmp_path / "folder", tiny_config("llama"))
    path = write_gguf(folder, tmp_path / "model.gguf", type_of=lambda name: Type.BF16 if "ffn" in name else Type.F16)
    options = replace(NEAREST, tokenizer=str(folder))
    before = export(str(path), tmp_path / "nearest", options=options)
    found = export(str(path), tmp_path / "out", options=replace(options, calibration=text))
    assert kl(found) < kl(before)


def test_integers_of_a_file_are_not_touched(tmp_path: Path, text: Path) -> None:
    folder = save_model(tmp_path / "folder", tiny_config("llama"))

    def mixed(name: str) -> Type:
        return Type.Q4_1 if "ffn_down" in name else Type.F16

    options = replace(NEAREST, tokenizer=str(folder), parity=False, calibration=text)
    path = write_gguf(folder, tmp_path / "mixed.gguf", type_of=mixed)
    with pytest.raises(OptionError, match="nothing to round: it is for matrices of 4 bits, and all keep the check"):
        export(str(path), tmp_path / "kept", options=options, progress=Notes())
    progress = Notes()
    pinned = replace(options, target=FormatChoice(linear="int4_asym"))
    found = export(str(path), tmp_path / "out", options=pinned, progress=progress)
    assert "2 matrices keep the checkpoint's own integers, which calibration does not touch" in progress.notes
    plain = export(str(path), tmp_path / "plain", options=replace(pinned, calibration=None))
    same = {name: tensor_of(found, name) == tensor_of(plain, name) for name in ("layers.0.down", "layers.0.o")}
    assert same == {"layers.0.down": True, "layers.0.o": False}


def tensor_of(result: ExportResult, name: str) -> bytes:
    tensor = next(item for item in result.manifest.models["target"].tensors if item.name == name)
    data = (result.folder / "target.bin").read_bytes()
    return data[tensor.offset : tensor.offset + tensor.bytes]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"calibration .*none\.txt cannot be read: there is no such file"):
        ExportOptions(calibration=tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"has 0 tokens; give a text of at least 1024"),
        (b"A short text.\n" * 20, r"has 280 tokens; give a text of at least 1024"),
        ("Ничего не понятно. ".encode() * 200, r"\d+% of the tokens of calibration .* are unknown or parts of a char"),
        (b"\xff\xfe\x00text" * 900, "UTF-16, must be UTF-8"),
        (b"text \xc3\x28" * 900, "is no text"),
    ],
)
def test_texts_that_say_nothing(target: str, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=message):
        export(target, tmp_path / "out", options=replace(NEAREST, calibration=path))
    assert not (tmp_path / "out").exists()


def test_formats_that_need_no_calibration(target: str, text: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"calibration .* has nothing to round: .* and all have more"):
        export(target, tmp_path / "out", options=replace(NEAREST, calibration=text, target=FormatChoice("int8")))
    assert not (tmp_path / "out").exists()


def test_weights_that_are_no_numbers(target: str, text: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(target)
    model.model.layers[1].mlp.down_proj.weight.data[3, 5] = float("nan")
    broken = save_checkpoint(tmp_path / "broken", byte_tokenizer(), spread=0.5)
    model.save_pretrained(broken)
    with pytest.raises(CheckpointError, match=r"down_proj\.weight has 1 values that are NaN"):
        export(str(broken), tmp_path / "out", options=replace(NEAREST, calibration=text))
    assert not (tmp_path / "out").exists()


def test_modules_whose_inputs_are_not_those_of_windows() -> None:
    streams = forward._Streams(num_windows=2, num_held=1, num_tokens=3)
    parts = streams.split("some.weight", torch.arange(15.0)[:, None])
    assert [part[:, 0].tolist() for part in parts] == [[*range(6)], [*range(6, 12)], [*range(12, 15)]]
    with pytest.raises(OptionError, match="reads 4x3 values of 5 windows, which calibration does not know"):
        streams.split("some.weight", torch.zeros(4, 3))


def test_a_model_without_an_output_layer(
    target: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "on_demand", lambda config, *_: AutoModel.from_config(config))
    with pytest.raises(UnsupportedModelError, match="LlamaModel has no output layer to calibrate for; leave it out"):
        export(target, tmp_path / "out", options=replace(NEAREST, calibration=text))


def test_windows_come_from_all_over_a_text(target: str, tmp_path: Path) -> None:
    tokenizer = load_checkpoint(target).tokenizer
    assert tokenizer is not None
    path = tmp_path / "long.txt"
    path.write_text("".join(f"{number:>15}\n" for number in range(10_000)), encoding="utf-8")
    found = read_windows("calibration", path, tokenizer, max_positions=256)
    assert found.windows.shape == (64, 256)
    first, last = (bytes(found.windows[index].astype(np.uint8)) for index in (0, -1))
    assert first != last
    with_bos = read_windows("calibration", path, replace(tokenizer, add_bos=True), max_positions=64)
    assert (with_bos.windows[:, 0] == tokenizer.bos_id).all()
    assert with_bos.windows.shape == (256, 64)


@pytest.mark.parametrize(("num_characters", "shape", "num_held"), [(1024, (8, 128), 2), (9000, (35, 256), 4)])
def test_windows_that_are_held_are_not_neighbours(
    target: str, tmp_path: Path, num_characters: int, shape: tuple[int, int], num_held: int
) -> None:
    tokenizer = load_checkpoint(target).tokenizer
    assert tokenizer is not None
    path = write_text(tmp_path / "text.txt", num_characters)
    found = read_windows("calibration", path, tokenizer, max_positions=256)
    assert (found.windows.shape, found.num_held) == (shape, num_held)
    windows = [tuple(row) for row in found.windows.tolist()]
    reordered = [tuple(row) for row in found.held_last().windows.tolist()]
    assert sorted(reordered) == sorted(windows)
    held = [windows.index(row) for row in reordered[-num_held:]]
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise(held))


@pytest.mark.parametrize("format_name", ["int4", "int4_asym"])
def test_kept_blocks_come_back(tmp_path: Path, format_name: str) -> None:
    rng = np.random.default_rng(1)
    made = {
        name: quantise(rng.standard_normal((rows, 64), np.float32), format_name) for name, rows in (("a", 5), ("b", 48))
    }
    with CalibratedBlocks(tmp_path / "blocks") as blocks:
        for name, quantised in made.items():
            blocks.add(name, format_name, quantised)
        for name, quantised in made.items():
            found = blocks.get(name, format_name)
            assert found is not None
            assert np.array_equal(found.codes, quantised.codes)
            assert np.array_equal(found.dequantise(), quantised.dequantise())
        assert blocks.get("a", "int8") is None
        blocks.clear()
        assert (len(blocks), blocks.get("a", format_name)) == (0, None)
    assert not (tmp_path / "blocks").exists()


def test_the_command_says_what_was_done(target: str, text: Path, tmp_path: Path, cli: CommandLine) -> None:
    finished = cli("export", target, "--out", tmp_path / "out", "--no-parity", "--calibration", text)
    assert finished.exit_code == 0, finished.err
    assert f"matrices on 5888 tokens of {text}" in finished.out
    assert "where it was not read, KL" in finished.out
    finished = cli("export", target, "--out", tmp_path / "other", "--calibration", tmp_path / "none.txt")
    assert (finished.exit_code, "none.txt cannot be read: there is no such file" in finished.err) == (2, True)
