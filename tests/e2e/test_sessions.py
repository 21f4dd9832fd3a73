"""Saved sessions: a conversation goes on in another engine with the same bits, and a hostile file does no harm."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.sessions import SessionParts
from shared_passes import counts

from pilotfish import Engine, PilotfishError
from pilotfish.bindings import (
    BundleCorruptError,
    BundleFileMissingError,
    BundleVersionError,
    ContextFullError,
    EngineBusyError,
    InvalidArgumentError,
    PairMismatchError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DRAFTING: tuple[dict[str, Any], ...] = (
    {"source": "plain"},
    {"source": "draft", "num_draft_tokens": 3},
    {"source": "head", "num_draft_tokens": 3},
    {"source": "head", "tree": "dynamic", "tree_nodes": 8},
)


def opened(bundle: Path, **arguments: Any) -> Engine:
    return Engine(bundle, threads=1, calibration="off", draft_window=0, **({"max_context": 256} | arguments))


def some_ids(count: int, seed: int = 3) -> list[int]:
    chooser = random.Random(seed)
    return [chooser.randrange(256) for _ in range(count)]


@pytest.fixture
def saved(both: Path, tmp_path: Path) -> Iterator[tuple[Path, list[int]]]:
    """A session's file, and the conversation in it."""
    with opened(both) as engine:
        prompt = some_ids(100)
        answer = engine.generate(prompt, max_new_tokens=40, ignore_eos=True, **DRAFTING[1])
        ids = prompt + list(answer.token_ids)
        engine.generate(ids, max_new_tokens=1, **DRAFTING[2])
        assert engine.save_session(tmp_path / "file", ids, note="a note \N{SNOWMAN}") == 128
        yield tmp_path / "file", ids


@pytest.mark.parametrize("drafting", DRAFTING, ids=str)
def test_a_conversation_goes_on_with_the_same_bits(
    both: Path, saved: tuple[Path, list[int]], drafting: dict[str, Any]
) -> None:
    path, ids = saved
    with opened(both) as engine, opened(both) as fresh:
        session = engine.load_session(path)
        assert (list(session.token_ids), session.num_cached_tokens) == (ids, 128)
        assert session.note == "a note \N{SNOWMAN}"
        prompt = [*ids, *some_ids(9, seed=4)]
        options: dict[str, Any] = {"max_new_tokens": 30, "ignore_eos": True} | drafting
        result = engine.generate(prompt, **options)
        alone = fresh.generate(prompt, **options)
        assert (result.token_ids, result.logprobs) == (alone.token_ids, alone.logprobs)
        assert counts(result) == counts(alone)
        assert result.stats.num_prefilled_target <= len(prompt) - 127
        if drafting["source"] == "draft":
            assert result.stats.num_prefilled_draft <= len(prompt) - 96
        engine.check()


def test_what_is_not_cached_any_more_is_saved_as_far_as_it_is(both: Path, tmp_path: Path) -> None:
    with opened(both) as engine:
        path = tmp_path / "file"
        assert engine.save_session(path, [], note="empty") == 0
        assert engine.load_session(path).note == "empty"
        assert engine.save_session(path, some_ids(70)) == 0
        assert list(engine.load_session(path).token_ids) == some_ids(70)
        engine.generate(some_ids(70), max_new_tokens=1, source="plain")
        assert engine.save_session(path, some_ids(70) + [1] * 100) == 64
        engine.check()


def test_a_session_makes_room_and_does_not_take_it_from_who_runs(both: Path, saved: tuple[Path, list[int]]) -> None:
    path, ids = saved
    with opened(both, max_context=160) as engine:
        engine.generate(some_ids(120, seed=8), max_new_tokens=30, ignore_eos=True)
        assert engine.load_session(path).num_cached_tokens == 128
        assert engine.generate(ids[:130], max_new_tokens=2, source="plain").stats.num_prefilled_target <= 3
        stream = engine.stream(some_ids(5, seed=9), max_new_tokens=140)
        next(stream)
        with pytest.raises(EngineBusyError):
            engine.load_session(path)
        stream.close()
        engine.check()
    with opened(both, max_context=100) as engine, pytest.raises(ContextFullError, match="larger max_context"):
        engine.load_session(path)


def test_a_file_for_another_engine_is_refused(both: Path, saved: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, _ = saved
    other = tmp_path / "other"
    shutil.copytree(both, other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["tokenizer"]["pad_id"] = 3
    (other / "manifest.json").write_text(json.dumps(manifest))
    with opened(other) as engine, pytest.raises(PairMismatchError, match="another bundle") as caught:
        engine.load_session(path)
    assert len(str(caught.value).splitlines()) == 1
    content = path.read_bytes()
    with opened(both) as engine:
        path.write_bytes(content.replace(b"pilotfish session 1", b"pilotfish session 2"))
        with pytest.raises(BundleVersionError, match="another format"):
            engine.load_session(path)


def test_damaged_files_are_refused(both: Path, saved: tuple[Path, list[int]]) -> None:
    path, ids = saved
    content = path.read_bytes()
    chooser = random.Random(2)
    with opened(both) as engine:
        for _ in range(40):
            changed = bytearray(content)
            changed[chooser.randrange(len(content))] ^= 1 << chooser.randrange(8)
            path.write_bytes(changed)
            with pytest.raises((BundleCorruptError, BundleVersionError)):
                engine.load_session(path)
            path.write_bytes(content[: chooser.randrange(len(content))])
            with pytest.raises(BundleCorruptError):
                engine.load_session(path)
        path.write_bytes(content + b"x")
        with pytest.raises(BundleCorruptError, match="too long"):
            engine.load_session(path)
        engine.check()
        assert engine.info.num_retained_blocks == 0
        path.write_bytes(content)
        engine.load_session(path)
        assert engine.generate(ids, max_new_tokens=2, source="plain").stats.num_prefilled_target <= len(ids) - 127


def test_what_cannot_be_saved_or_read_is_one_error(both: Path, tmp_path: Path) -> None:
    with opened(both) as engine:
        with pytest.raises(BundleFileMissingError):
            engine.load_session(tmp_path / "missing")
        with pytest.raises(BundleFileMissingError, match="no file"):
            engine.load_session(tmp_path)
        with pytest.raises(BundleFileMissingError):
            engine.save_session(tmp_path, [1])
        (tmp_path / "block").write_text("a file")
        with pytest.raises(BundleFileMissingError):
            engine.save_session(tmp_path / "block" / "file", [1])
        for bad in ([500_000], [-1], 3, [[1]]):
            with pytest.raises(InvalidArgumentError):
                engine.save_session(tmp_path / "file", bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="note"):
            engine.save_session(tmp_path / "file", [1], note=b"x")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="note has"):
            engine.save_session(tmp_path / "file", [1], note="x" * (2**24 + 1))
        with pytest.raises(InvalidArgumentError, match="path"):
            engine.load_session(3)  # type: ignore[arg-type]
        assert sorted(each.name for each in tmp_path.iterdir()) == ["block"]


def test_a_file_is_replaced_as_a_whole_and_private(both: Path, saved: tuple[Path, list[int]]) -> None:
    path, ids = saved
    with opened(both) as engine:
        engine.load_session(path)
        assert engine.save_session(path, ids, note="another") == 128
        assert engine.load_session(path).note == "another"
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == ["file"]


def test_caches_that_are_no_numbers_are_refused(both: Path, saved: tuple[Path, list[int]]) -> None:
    """Behind a checksum that is right: it is forged, as anybody can."""
    path, ids = saved
    with opened(both) as engine:
        forge(path, b"\xff")
        with pytest.raises(BundleCorruptError, match="no numbers"):
            engine.load_session(path)
        forge(path, b"\x11")
        engine.load_session(path)  # nonsense, but numbers: that is what such a file is worth
        assert len(engine.generate(ids, max_new_tokens=4, ignore_eos=True).token_ids) == 4
        engine.check()


def forge(path: Path, caches: bytes) -> None:
    """Other caches over and over, with their checksum."""
    parts = SessionParts.parse(path.read_bytes())
    parts.caches = caches * (len(parts.caches) // len(caches))
    path.write_bytes(parts.compose())


def test_errors_are_pilotfishs(both: Path, tmp_path: Path) -> None:
    """Any bytes: one error of the package's own, or a session."""
    chooser = random.Random(9)
    with opened(both) as engine:
        for _ in range(60):
            data = bytes(chooser.randrange(256) for _ in range(chooser.randrange(200)))
            (tmp_path / "file").write_bytes(chooser.choice((b"", b"pilotfish session 1\n")) + data)
            with pytest.raises(PilotfishError):
                engine.load_session(tmp_path / "file")
