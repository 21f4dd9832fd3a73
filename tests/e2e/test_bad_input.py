"""Bad input gets one clear error: an exception class of its own, exit code 2 and one line on the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import pilotfish.runtime.engine
from pilotfish import Engine
from pilotfish.bindings import (
    BudgetTooSmallError,
    BundleCorruptError,
    BundleFileMissingError,
    BundleVersionError,
    ContextFullError,
    InvalidArgumentError,
    OnnxRuntimeMissingError,
    OnnxRuntimeVersionError,
    PairMismatchError,
    PilotfishError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import CommandLine, Finished


def refused(finished: Finished, *words: str) -> bool:
    """Exit code 2, nothing on stdout, one line on stderr with these words."""
    line = finished.err.strip()
    assert (finished.exit_code, finished.out) == (2, ""), finished
    assert line.startswith("error: ")
    assert "\n" not in line
    for word in words:
        assert word in line
    return True


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle to damage."""
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def edit_manifest(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads((bundle / "manifest.json").read_text())
    change(content)
    (bundle / "manifest.json").write_text(json.dumps(content))


def truncate(bundle: Path, file: str) -> None:
    content = (bundle / file).read_bytes()
    (bundle / file).write_bytes(content[: len(content) // 2])


def flip_a_bit(bundle: Path, file: str) -> None:
    content = bytearray((bundle / file).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / file).write_bytes(content)


FILES = ["target.onnx", "target.bin", "draft.onnx", "draft.bin", "tokenizer.json"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [truncate, flip_a_bit])
def test_a_damaged_file_is_named(copy: Path, cli: CommandLine, file: str, damage: Callable[[Path, str], None]) -> None:
    damage(copy, file)
    with pytest.raises(BundleCorruptError, match=file):
        Engine(copy)
    assert refused(cli("run", copy, "x"), file)


@pytest.mark.parametrize("file", [*FILES, "manifest.json"])
def test_a_missing_file_is_named(copy: Path, cli: CommandLine, file: str) -> None:
    (copy / file).unlink()
    with pytest.raises(BundleFileMissingError, match=file):
        Engine(copy)
    assert refused(cli("run", copy, "x"), file)


def test_a_folder_that_is_not_there(tmp_path: Path, cli: CommandLine) -> None:
    with pytest.raises(BundleFileMissingError, match="nothing"):
        Engine(tmp_path / "nothing")
    for command in (["info"], ["plan"], ["bench"], ["chat"]):
        assert refused(cli(*command, tmp_path / "nothing"), "is not a bundle")


def test_a_manifest_that_is_none(copy: Path, cli: CommandLine) -> None:
    (copy / "manifest.json").write_text('{"format": "something else"}')
    with pytest.raises(BundleCorruptError, match="something else"):
        Engine(copy)
    assert refused(cli("info", copy), "something else", "pilotfish-bundle")


def test_a_newer_format(copy: Path, cli: CommandLine) -> None:
    edit_manifest(copy, lambda content: content.update(format_version=2))
    with pytest.raises(BundleVersionError, match=r"2.*reads 1"):
        Engine(copy)
    assert refused(cli("info", copy), "format_version 2")


def test_a_draft_with_another_vocabulary(copy: Path, cli: CommandLine) -> None:
    edit_manifest(copy, lambda content: content["models"]["draft"].update(vocab_size=200, num_logits=200))
    with pytest.raises(PairMismatchError, match=r"(?s)200.*258|258.*200"):
        Engine(copy)
    assert refused(cli("run", copy, "x"), "200", "258")


def test_a_prompt_longer_than_the_context(engine: Engine, tiny_bundle: Path, cli: CommandLine) -> None:
    limit = engine.info.max_context
    for length in (limit, limit + 1, 10 * limit):
        with pytest.raises(ContextFullError, match=rf"{length}.*{limit}"):
            engine.generate([1] * length)
    assert refused(cli("run", "--raw", tiny_bundle, "x" * 1000), "1000", str(limit))
    assert len(engine.generate([1] * (limit - 1), max_new_tokens=5, ignore_eos=True).token_ids) == 1


def test_a_budget_that_is_too_small(tiny_bundle: Path, cli: CommandLine) -> None:
    with pytest.raises(BudgetTooSmallError, match="1048576") as caught:
        Engine(tiny_bundle, memory_budget="1MiB")
    assert isinstance(caught.value, MemoryError)
    assert refused(cli("run", tiny_bundle, "x", "--memory-budget", "1MiB"), "1048576", "weights")
    planned = cli("plan", tiny_bundle, "--memory-budget", "1MiB")
    assert planned.exit_code == 2
    assert "target weights" in planned.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threads": 0}, "threads is 0"),
        ({"threads": "2"}, "threads is '2', must be an integer"),
        ({"threads": 1.5}, "threads is 1.5, must be an integer"),
        ({"max_context": 64.0}, "max_context is 64.0, must be an integer"),
        ({"max_draft_tokens": None}, "max_draft_tokens is None, must be an integer"),
        ({"draft_window": 64.5}, "draft_window is 64.5, must be an integer"),
        ({"device": None}, "device is None"),
        ({"threads": 5000}, "threads is 5000, must be an integer in 1..1024"),
        ({"memory_budget": "six"}, "memory size is 'six'"),
        ({"max_context": 100_000}, "max_context is 100000"),
        ({"max_draft_tokens": 64}, "max_draft_tokens is 64"),
        ({"num_sequences": 0}, "num_sequences is 0"),
        ({"prefill_chunk": 0}, "prefill_chunk is 0"),
        ({"prefill_chunk": 4097}, "prefill_chunk is 4097"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"lookup_store": 3}, "lookup_store is 3, must be the path of a file"),
        ({"device": "cuda:x"}, "device is 'cuda:x'"),
    ],
)
def test_an_engine_option_outside_its_range(tiny_bundle: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Engine(tiny_bundle, **options)


@pytest.mark.parametrize("bundle", [None, 7, b"bundle"])
def test_a_bundle_that_is_no_path(bundle: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"bundle is {bundle!r}, must be the path of a folder"):
        Engine(bundle)


def test_an_unknown_option(engine: Engine, tiny_bundle: Path, cli: CommandLine) -> None:
    with pytest.raises(TypeError, match="temprature"):
        engine.generate("x", temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="thread"):
        Engine(tiny_bundle, thread=2)  # type: ignore[call-arg]
    finished = cli("run", tiny_bundle, "x", "--temprature", "1")
    assert finished.exit_code == 2
    assert "--temprature" in finished.err


def test_an_option_value_outside_its_range(tiny_bundle: Path, cli: CommandLine) -> None:
    assert refused(cli("run", tiny_bundle, "x", "--temperature", "-1"), "temperature is -1")
    assert refused(cli("run", tiny_bundle, "x", "--draft-tokens", "9"), "num_draft_tokens is 9", "0..8")
    assert refused(cli("bench", tiny_bundle, "--prompts", "nothing.jsonl"), "nothing.jsonl")


def test_drafting_without_a_draft(plain_bundle: Path, cli: CommandLine) -> None:
    with Engine(plain_bundle, threads=1) as engine:
        assert engine.generate("x", max_new_tokens=3).stats.num_drafted == 0
        with pytest.raises(InvalidArgumentError, match="the bundle has no draft"):
            engine.generate("x", num_draft_tokens=2)
    assert refused(cli("run", plain_bundle, "x", "--draft-tokens", "2"), "the bundle has no draft")


def test_no_onnxruntime(tiny_bundle: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(OnnxRuntimeMissingError):
        Engine(tiny_bundle)
    assert refused(cli("run", tiny_bundle, "x"), "pip install 'pilotfish[cpu]'")
    doctor = cli("doctor")
    assert doctor.exit_code == 2
    assert "pip install 'pilotfish[cpu]'" in doctor.err


def test_a_library_that_is_none(tiny_bundle: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilotfish.runtime.engine, "ort_for", lambda _: tiny_bundle / "target.onnx")
    with pytest.raises(OnnxRuntimeMissingError, match=r"target\.onnx"):
        Engine(tiny_bundle)
    assert refused(cli("run", tiny_bundle, "x"), "target.onnx")


OLD_RUNTIME = """
static const void* get_api(unsigned version) { return version > 10 ? 0 : &get_api; }
static const char* get_version(void) { return "1.10.0"; }
static const struct { const void* (*api)(unsigned); const char* (*version)(void); } base = {get_api, get_version};
const void* OrtGetApiBase(void) { return &base; }
"""


def test_an_old_onnxruntime(
    tiny_bundle: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libonnxruntime.so.1.10.0"
    subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], check=True, input=OLD_RUNTIME.encode())
    monkeypatch.setattr(pilotfish.runtime.engine, "ort_for", lambda _: library)
    with pytest.raises(OnnxRuntimeVersionError, match=r"1\.10\.0"):
        Engine(tiny_bundle)
    assert refused(cli("run", tiny_bundle, "x"), "1.10.0")


def test_a_device_that_is_not_in_this_build(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pilotfish.runtime.engine.ort_for("cpu")
    monkeypatch.setattr(pilotfish.runtime.engine, "ort_for", lambda _: library)
    with pytest.raises(UnsupportedError):
        Engine(tiny_bundle, device="cuda")


def test_refused_bundles_leak_nothing(copy: Path) -> None:
    """The file descriptors that a refused load opened are closed again."""
    flip_a_bit(copy, "draft.bin")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(PilotfishError):
            Engine(copy)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder / "nothing.gguf", "nothing.gguf"),
        (lambda folder: folder, "configuration"),
        (lambda folder: write_config(folder, "t5"), "t5"),
    ],
)
def test_a_checkpoint_that_cannot_be_exported_leaves_nothing(
    tmp_path: Path, cli: CommandLine, make: Callable[[Path], Path], words: str
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    finished = cli("export", make(folder), "--out", tmp_path / "out")
    assert finished.exit_code == 2
    assert finished.err.splitlines()[-1].startswith("error: ")
    assert words in finished.err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def write_config(folder: Path, model_type: str) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def test_an_exported_pair_must_share_its_vocabulary(
    checkpoints: dict[str, Path], tmp_path: Path, cli: CommandLine
) -> None:
    finished = cli("export", checkpoints["target"], "--draft", checkpoints["toy"], "--out", tmp_path / "out")
    assert finished.exit_code == 2
    assert "do not share a vocabulary" in finished.err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_overwritten(checkpoints: dict[str, Path], tmp_path: Path, cli: CommandLine) -> None:
    (tmp_path / "mine").write_text("kept")
    finished = cli("export", checkpoints["target"], "--out", tmp_path)
    assert finished.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
