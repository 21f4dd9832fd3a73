"""Whatever is passed to whatever is public: only a PilotfishError leaves, or Python's own TypeError."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections import UserDict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish import Engine
from pilotfish.bindings import Model, PilotfishError
from pilotfish.runtime import GenerateOptions, memory_plan

if TYPE_CHECKING:
    from collections.abc import Callable


class Rude:
    """What fails wherever it is looked at."""

    def __repr__(self) -> str:
        raise ValueError("no")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = object.__hash__


def nested(depth: int = 5000) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


WRONG: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, -(2**31) - 1, 2**63, 2**64, -(2**64), 10**400, 0.5, -0.5, 1e308, 1e-320),
    *(float("nan"), float("inf"), float("-inf"), 1j, Decimal("0.5"), Fraction(1, 3)),
    *("", "x", "\ud800", "a\0b", "é" * 300, b"", b"x", bytearray(b"x"), memoryview(b"x")),
    *(
        [],
        [1],
        [1.5],
        [None],
        ["\ud800"],
        [[1], [1, 2]],
        [True],
        [2**64],
        (),
        (1, 2),
        {},
        {"a": 1},
        {1: 2},
        {None: None},
    ),
    *(set(), {1}, range(3), iter([1]), object(), Rude(), [Rude()], len, int, Path("x"), Path("\ud800"), nested()),
    *(
        np.int64(3),
        np.float32(0.5),
        np.float64("nan"),
        np.array([True])[0],
        np.array([]),
        np.array([1.0, 2.0]),
        np.array(3),
    ),
    *(np.array([[1, 2]]), np.array([1, None], dtype=object), np.array(["a"]), np.array([float("nan")])),
    *(np.array([2**63], dtype=np.uint64), UserDict(role="user", content="x"), [{"role": "user", "content": nested()}]),
    *([{"role": "user", "content": "\ud800"}], [{"role": "user", "content": None}], [{"role": None, "content": "x"}]),
]
SHORT: dict[str, Any] = {"max_new_tokens": 1}
GENERATION = [field.name for field in dataclasses.fields(GenerateOptions)]
STRUCTURE = ("json_schema", "regex", "grammar")  # other tests' business, and a second each
ENGINE = [name for name in inspect.signature(Engine).parameters if name != "bundle"]
PLAN = [name for name in inspect.signature(memory_plan).parameters if name != "bundle"]


def only_ours(what: str, call: Callable[[], object], fails: list[str]) -> None:
    try:
        call()
    except PilotfishError:
        pass
    except BaseException as error:  # noqa: BLE001 - a panic is no Exception
        fails.append(f"{what}: {type(error).__name__}: {error}"[:300])


def shown(value: object) -> str:
    try:
        return f"{type(value).__name__} {value!r:.30}"
    except Exception:  # noqa: BLE001
        return type(value).__name__


def test_every_method(engine: Engine) -> None:
    said = [{"role": "user", "content": "x"}]

    async def first(stream: Any) -> None:
        async with stream:
            await stream.__anext__()

    calls: dict[str, Callable[[Any], object]] = {
        "generate": lambda x: engine.generate(x, **SHORT),
        "stream": lambda x: engine.stream(x, **SHORT).result(),
        "astream": lambda x: asyncio.run(first(engine.astream(x, **SHORT))),
        "generate_batch": lambda x: engine.generate_batch(x, **SHORT),
        "generate_batch of one": lambda x: engine.generate_batch([x], **SHORT),
        "chat": lambda x: engine.chat(x, **SHORT),
        "chat with one": lambda x: engine.chat([x], **SHORT),
        "chat with content": lambda x: engine.chat([{"role": "user", "content": x}], **SHORT),
        "chat with role": lambda x: engine.chat([{"role": x, "content": "x"}], **SHORT),
        "chat with tools": lambda x: engine.chat(said, tools=x, **SHORT),
        "chat when full": lambda x: engine.chat(said, when_full=x, **SHORT),
        "stream_chat": lambda x: engine.stream_chat(x, when_full="drop_oldest", **SHORT).result(),
        "astream_chat": lambda x: asyncio.run(first(engine.astream_chat(x, **SHORT))),
        "encode": engine.encode,
        "encode_chat": engine.encode_chat,
        "encode_chat with tools": lambda x: engine.encode_chat(said, tools=x),
        "decode": engine.decode,
        "logits": engine.logits,
        "logits of a model": lambda x: engine.logits([1], x),
        "time_pass": lambda x: engine.time_pass(x, context=1, num_repeats=1),
        "time_pass context": lambda x: engine.time_pass(1, context=x, num_repeats=1),
        "time_pass model": lambda x: engine.time_pass(1, context=1, num_repeats=1, model=x),
        "pass_cost": lambda x: engine.pass_cost(x, context=1),
        "pass_cost context": lambda x: engine.pass_cost(1, context=x),
        "pass_cost model": lambda x: engine.pass_cost(1, context=1, model=x),
    }
    fails: list[str] = []
    for name, call in calls.items():
        for value in WRONG:
            only_ours(f"{name}({shown(value)})", lambda call=call, value=value: call(value), fails)  # type: ignore[misc]
    for value in WRONG:
        if isinstance(value, int) and 2 <= value <= 2**20:
            continue
        only_ours(
            f"num_repeats {shown(value)}",
            lambda value=value: engine.time_pass(1, context=1, num_repeats=value, model=Model.TARGET),  # type: ignore[misc]
            fails,
        )
    assert not fails, "\n".join(fails)
    engine.check()


@pytest.mark.parametrize("option", [name for name in GENERATION if name not in STRUCTURE])
def test_every_option_of_a_generation(engine: Engine, option: str) -> None:
    fails: list[str] = []
    for value in WRONG:
        if option == "max_new_tokens" and not isinstance(value, (int, np.integer)):
            only_ours(shown(value), lambda value=value: engine.generate("x", max_new_tokens=value), fails)  # type: ignore[misc]
        elif option != "max_new_tokens":
            options = SHORT | {option: value}
            only_ours(f"{option}={shown(value)}", lambda options=options: engine.generate("x", **options), fails)  # type: ignore[misc]
    assert not fails, "\n".join(fails)


@pytest.mark.parametrize("option", PLAN)
def test_every_option_of_a_plan(tiny_bundle: Path, option: str) -> None:
    fails: list[str] = []
    for value in WRONG:
        options: dict[str, Any] = {option: value}
        only_ours(f"{option}={shown(value)}", lambda options=options: memory_plan(tiny_bundle, **options), fails)  # type: ignore[misc]
    assert not fails, "\n".join(fails)


def test_every_option_of_an_engine(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some are paths of stores
    fails: list[str] = []
    for option in ENGINE:
        for value in WRONG:
            if option == "progress" and callable(value):  # it is called, and what it raises is the caller's
                continue
            options: dict[str, Any] = {"threads": 1, option: value}
            only_ours(
                f"{option}={shown(value)}",
                lambda options=options: Engine(tiny_bundle, **options).close(),  # type: ignore[misc]
                fails,
            )
    for value in WRONG:
        only_ours(f"bundle={shown(value)}", lambda value=value: Engine(value), fails)  # type: ignore[misc]
        only_ours(f"plan {shown(value)}", lambda value=value: memory_plan(value), fails)  # type: ignore[misc]
    assert not fails, "\n".join(fails)


def test_what_python_itself_refuses(engine: Engine) -> None:
    with pytest.raises(TypeError, match="temprature"):
        engine.generate("x", temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="prompt"):
        engine.generate()  # type: ignore[call-arg]
