"""What a load tells, how it is ended, and that files are checked although they are read beside other work."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish import Engine
from pilotfish.bindings import BundleCorruptError, CallbackFailedError, InvalidArgumentError, calls
from pilotfish.runtime import loading

if TYPE_CHECKING:
    from collections.abc import Callable

ALIKE = {"threads": 1, "calibration": "off"}


def weight_bytes(bundle: Path) -> int:
    return sum(file.stat().st_size for file in bundle.glob("*.bin"))


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def edit_manifest(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    change(manifest)
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_load_tells_how_far_it_is(tiny_bundle: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with Engine(tiny_bundle, threads=1, calibration="refresh", progress=lambda *each: told.append(each)) as engine:
        assert engine.generate("x", max_new_tokens=2, ignore_eos=True).stats.num_new_tokens == 2
    total = weight_bytes(tiny_bundle)
    assert told[-2:] == [("reading", total, total), ("measuring", total, total)]
    assert {stage for stage, _, _ in told[:-1]} == {"reading"}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_heads_are_counted(head_bundles: Path) -> None:
    told: list[tuple[str, int, int]] = []
    Engine(head_bundles / "eagle3", **ALIKE, progress=lambda *each: told.append(each)).close()
    total = weight_bytes(head_bundles / "eagle3")
    assert told[-1] == ("reading", total, total)


def num_open() -> tuple[int, int]:
    """Threads and descriptors of this process, without what earlier tests have left to the collector."""
    gc.collect()
    task, descriptors = (sum(1 for _ in Path("/proc/self", name).iterdir()) for name in ("task", "fd"))
    return task, descriptors


class EndedError(Exception):
    """Nobody else's."""


@pytest.mark.parametrize(
    "error", [EndedError("enough"), KeyboardInterrupt(), SystemExit(3), CallbackFailedError("own")]
)
def test_what_the_progress_function_raises_ends_the_load(tiny_bundle: Path, error: BaseException) -> None:
    def end(_stage: str, _done: int, _total: int) -> None:
        raise error

    Engine(tiny_bundle, **ALIKE).close()
    before = num_open()
    for _ in range(3):
        with pytest.raises(type(error)) as raised:
            Engine(tiny_bundle, **ALIKE, progress=end)
        assert raised.value is error
    assert all(now <= then for now, then in zip(num_open(), before, strict=True))
    assert "pilotfish-tokenizer" not in {thread.name for thread in threading.enumerate()}
    Engine(tiny_bundle, **ALIKE).close()


def test_arguments_about_loading_are_checked(tiny_bundle: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="verify_hashes is 'sometimes', must be one of always, never"):
        Engine(tiny_bundle, verify_hashes="sometimes")
    with pytest.raises(InvalidArgumentError, match="progress is 7, must be a function"):
        Engine(tiny_bundle, progress=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["target.bin", "draft.bin", "target.onnx", "tokenizer.json"])
def test_hashes_are_compared_unless_that_is_left_out(copy: Path, name: str) -> None:
    if name.endswith(".bin"):
        damage(copy / name)
    else:
        (copy / name).write_bytes((copy / name).read_bytes())
        role, _, kind = name.partition(".")
        entry = (lambda m: m["tokenizer"]) if kind == "json" else (lambda m: m["models"][role]["graph"])
        edit_manifest(copy, lambda manifest: entry(manifest).update(sha256="0" * 64))
    with pytest.raises(BundleCorruptError, match=rf"{name}.* sha256"):
        Engine(copy, **ALIKE)
    with Engine(copy, **ALIKE, verify_hashes="never") as engine:
        assert engine.generate([1, 2], max_new_tokens=2, ignore_eos=True).stats.num_new_tokens == 2


def test_sizes_are_always_compared(copy: Path) -> None:
    os.truncate(copy / "draft.bin", (copy / "draft.bin").stat().st_size - 1)
    with pytest.raises(BundleCorruptError, match=r"draft\.bin: expected \d+ bytes"):
        Engine(copy, **ALIKE, verify_hashes="never")


def test_a_fault_of_the_tokenizer_is_told_first(copy: Path) -> None:
    damage(copy / "target.bin")
    damage(copy / "tokenizer.json")
    with pytest.raises(BundleCorruptError, match=r"tokenizer\.json has sha256"):
        Engine(copy, **ALIKE)


def test_a_fault_that_the_tokenizers_library_finds(copy: Path) -> None:
    content = json.loads((copy / "tokenizer.json").read_text())
    content["model"]["vocab"]["a"] = "no number"
    (copy / "tokenizer.json").write_text(json.dumps(content))
    edit_manifest(copy, lambda m: m["tokenizer"].update(bytes=(copy / "tokenizer.json").stat().st_size))
    with pytest.raises(BundleCorruptError, match=r"tokenizer\.json is not a tokenizer"):
        Engine(copy, **ALIKE, verify_hashes="never")


@pytest.mark.parametrize(("budget", "seen"), [("64GiB", [True]), (None, [False])])
def test_within_a_budget_texts_are_read_before_the_models(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, budget: str | None, seen: list[bool]
) -> None:
    """What their reading takes for a moment is not on top of the models then; without a budget both take less time."""
    are_read, models_came = threading.Event(), threading.Event()
    read_texts, engine_open = loading._read_texts, calls.engine_open
    order: list[bool] = []

    def slow_texts(*arguments: Any, **keywords: Any) -> loading.BundleTexts:
        models_came.wait(0.5 if budget else 20)
        are_read.set()
        return read_texts(*arguments, **keywords)

    def watched_open(*arguments: Any) -> Any:
        order.append(are_read.is_set())
        models_came.set()
        return engine_open(*arguments)

    monkeypatch.setattr(loading, "_read_texts", slow_texts)
    monkeypatch.setattr(calls, "engine_open", watched_open)
    Engine(tiny_bundle, memory_budget=budget, calibration="off").close()
    assert order == seen
