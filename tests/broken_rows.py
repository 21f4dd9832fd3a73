"""One token whose row of the target's embedding is of no numbers: who chooses it fails, and nobody beside it."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pilotfish import Engine
from pilotfish.bindings import BundleCorruptError, PilotfishError

if TYPE_CHECKING:
    from collections.abc import Sequence

TILE_ROWS = 16
GROUP = (64, 1088, 1024)  # columns of a tile's group in int8, its bytes, and those before its scales
NAN_F16 = b"\xff\xff"
NAN_F32 = struct.pack("<f", float("nan"))
EARLIEST = 2  # of the outputs' tokens, the one that is broken: rounds run before it

Options = dict[str, Any]


class Outcome(NamedTuple):
    """Of a generation; numbers are as text, so that they are equal where all their bits are."""

    token_ids: tuple[int, ...]
    logprobs: tuple[str, ...]
    error: str


def break_row(bundle: Path, token_id: int, folder: Path) -> Path:
    """A copy of a bundle in which an id's row of the target's embedding is NaN."""
    copy = Path(shutil.copytree(bundle, folder))
    manifest = json.loads((copy / "manifest.json").read_text())
    target = manifest["models"]["target"]
    tensor = next(entry for entry in target["tensors"] if entry["name"] == "embedding")
    path = copy / target["weights"]["file"]
    content = bytearray(path.read_bytes())
    tile, row = divmod(token_id, TILE_ROWS)
    places, nan = _places(target, tile, row)
    for place in places:
        content[tensor["offset"] + place : tensor["offset"] + place + len(nan)] = nan
    path.write_bytes(content)
    target["weights"]["sha256"] = hashlib.sha256(content).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def _places(target: dict[str, Any], tile: int, row: int) -> tuple[list[int], bytes]:
    """Where what makes a row NaN lies in the tensor: the scales of its blocks, or its numbers."""
    columns = target["hidden_size"]
    kind = target["formats"]["embedding"]
    if kind == "int8":
        width, size, scales = GROUP
        groups = range(-(-columns // width))
        first = tile * len(groups) * size
        halves = [first + group * size + scales + half * 2 * TILE_ROWS for group in groups for half in range(2)]
        return [half + 2 * row for half in halves], NAN_F16
    size, nan = {"f16": (2, NAN_F16), "f32": (4, NAN_F32)}[kind]
    return [((tile * columns + column) * TILE_ROWS + row) * size for column in range(columns)], nan


def token_of_one(engine: Engine, asked: Sequence[tuple[Sequence[int], Options]]) -> int:
    """An id that the output of one of these generations has in its midst, and no prompt and no other output."""
    outputs = [engine.generate(ids, **options).token_ids for ids, options in asked]
    prompted = {index for ids, _ in asked for index in ids}
    for place, output in enumerate(outputs):
        others = {index for number, other in enumerate(outputs) if number != place for index in other}
        for at, index in enumerate(output):
            if at >= EARLIEST and index not in others | prompted | set(output[:at]):
                return index
    raise AssertionError("no output has a token of its own")


def alone(engine: Engine, ids: Sequence[int], options: Options) -> Outcome:
    with engine.stream(ids, **options) as stream:
        return _outcome(stream, None)


def together(engine: Engine, asked: Sequence[tuple[Sequence[int], Options]]) -> list[Outcome]:
    """Each in rounds that it shares with all others that still run."""
    with ExitStack() as stack:
        streams = [stack.enter_context(engine.stream(ids, **options)) for ids, options in asked]
        errors: list[PilotfishError | None] = [None] * len(streams)
        while True:
            left = [i for i, stream in enumerate(streams) if errors[i] is None and stream.finish_reason is None]
            if not left:
                break
            for i, error in zip(left, engine.step_together([streams[i] for i in left]), strict=True):
                errors[i] = error
        return [_outcome(stream, error) for stream, error in zip(streams, errors, strict=True)]


def _outcome(stream: Any, error: PilotfishError | None) -> Outcome:
    events = []
    try:
        while (event := next(stream, None)) is not None:
            events.append(event)
    except BundleCorruptError as failed:
        error = failed
    named = "" if error is None else f"{type(error).__name__}: {error}"
    return Outcome(tuple(event.token_id for event in events), tuple(repr(event.logprob) for event in events), named)


def check_one_broken(bundle: Path, asked: Sequence[tuple[Sequence[int], Options]], folder: Path, **opened: Any) -> None:
    """Of these generations one comes to a token that breaks it; the others have the bits that they have alone.

    On a GPU a token that is drafted breaks a generation too.
    """
    with Engine(bundle, **opened) as engine:
        token_id = token_of_one(engine, asked)
        whole = together(engine, asked)
    with Engine(break_row(bundle, token_id, folder / str(token_id)), **opened) as engine:
        expected = [alone(engine, ids, options) for ids, options in asked]
        found = together(engine, asked)
        engine.check()
    broken = [each.error != "" for each in expected]
    assert any(broken)
    assert not all(broken)
    for here, there, first in zip(found, expected, whole, strict=True):
        assert here.error.split(":")[0] == there.error.split(":")[0], (here, there)
        if there.error:
            assert here.error.startswith("BundleCorruptError: ")
            assert here.token_ids == first.token_ids[: len(here.token_ids)]
        else:
            assert here == there == first
