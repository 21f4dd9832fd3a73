"""Each limit and default of an option stands once: in pilotfish.h, or in the function that fills an option struct."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish import Engine
from pilotfish.bindings import EngineOptions, limits
from pilotfish.bindings._ffi import ffi, lib
from pilotfish.runtime.cli.chat import chat
from pilotfish.runtime.cli.run import run
from pilotfish.runtime.engine_options import engine_options, memory_plan
from pilotfish.runtime.options import GenerateOptions
from pilotfish.runtime.speculation import SpeculationArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
# Where options are spelled, checked and handed on.
PYTHON = [
    *(
        ROOT / "runtime" / f"{name}.py"
        for name in ("options", "option_checks", "source_checks", "draft_tree", "rounds")
    ),
    *(ROOT / "runtime" / f"{name}.py" for name in ("engine", "engine_options", "speculation", "devices")),
    *(ROOT / "runtime" / "cli" / f"{name}.py" for name in ("arguments", "flags", "run", "chat")),
    *(ROOT / "bindings" / f"{name}.py" for name in ("limits", "records", "request_options")),
]
NATIVE = [path for name in ("options", "sampling_options") for path in (ROOT / "native" / "src").rglob(f"{name}.*")]
LEAST_TELLING = 3  # 0, 1 and 2 stand for many things


def defaults(struct: str) -> Any:
    pointer = ffi.new(f"{struct}*")
    getattr(lib, f"{struct}_init")(pointer)
    return pointer


def test_python_has_each_limit_of_the_header_and_no_other() -> None:
    prefixes = ("PF_MOST_", "PF_LEAST_", "PF_DEFAULT_", "PF_AS_MANY_")
    expected = {name.removeprefix("PF_"): getattr(lib, name) for name in dir(lib) if name.startswith(prefixes)}
    found = {name: value for name, value in vars(limits).items() if isinstance(value, (int, float))}
    assert found == expected
    assert len(found) > 10


def test_a_generations_defaults_are_the_librarys() -> None:
    request = GenerateOptions().to_request(has_draft=True, max_draft_tokens=8)
    struct = defaults("pf_generate_options")
    compared = request.numbers.keys() - {"seed"}
    assert {name: getattr(request, name) for name in compared} == {name: getattr(struct, name) for name in compared}
    assert len(compared) > 15
    assert struct.max_new_tokens == 256


def test_an_engines_defaults_are_the_librarys() -> None:
    names = inspect.signature(engine_options).parameters.keys() & inspect.signature(Engine).parameters.keys()
    given = {name: inspect.signature(Engine).parameters[name].default for name in names}
    options = engine_options(**given, library="", speculation=SpeculationArguments())
    struct = defaults("pf_engine_options")
    compared = {
        field.name
        for field in fields(EngineOptions)
        if getattr(options, field.name) is not None and field.name not in ("ort_library", "calibration_folder")
    }
    assert {name: getattr(options, name) for name in compared} == {name: getattr(struct, name) for name in compared}
    assert compared >= {"max_draft_tokens", "num_sequences", "calibration", "acceptance", "device"}


@pytest.mark.parametrize("name", ["max_draft_tokens", "num_sequences", "calibration", "acceptance"])
def test_every_signature_has_the_engines_defaults(name: str) -> None:
    functions: tuple[Callable[..., Any], ...] = (Engine, memory_plan, SpeculationArguments)
    found = {str(parameters[name].default) for each in functions if name in (parameters := signature(each))}
    assert len(found) == 1


@pytest.mark.parametrize("command", [run, chat])
def test_commands_default_to_the_engines_own(command: Callable[..., None]) -> None:
    options = GenerateOptions()
    compared = {
        name: parameter.default
        for name, parameter in signature(command).items()
        if hasattr(options, name) and parameter.default is not None
    }
    assert compared == {name: getattr(options, name) for name in compared}
    assert "max_new_tokens" in compared


def signature(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def numbers_in(path: Path) -> Iterator[tuple[int, float]]:
    """Line and value of each constant expression: 2**22 is one, and an enum's values are none."""
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.ClassDef) and "IntEnum" in {ast.unparse(base) for base in node.bases}:
            continue
        parts = list(ast.walk(node))
        if isinstance(node, ast.expr) and all(isinstance(part, CONSTANT) for part in parts):
            value = eval(compile(ast.Expression(node), str(path), "eval"))  # noqa: S307 - numbers and operators alone
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                yield node.lineno, value
        else:
            todo += ast.iter_child_nodes(node)


CONSTANT = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)


def test_no_number_of_the_library_stands_in_python() -> None:
    structs = [defaults(struct) for struct in ("pf_engine_options", "pf_generate_options")]
    values = [value for value in vars(limits).values() if isinstance(value, (int, float))]
    for struct in structs:
        members = [getattr(struct, name) for name, _ in ffi.typeof(struct).item.fields if name != "struct_size"]
        values += [value for value in members if isinstance(value, (int, float))]
    taken = {value for value in values if value >= LEAST_TELLING or 0 < value < 1}
    assert {8, 63, 256, 512, 4194304} < taken
    found = [f"{path.name}:{line}: {value}" for path in PYTHON for line, value in numbers_in(path) if value in taken]
    assert found == []


def test_no_help_text_has_a_default_of_its_own() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "runtime" / "cli").glob("*.py")]
    assert [found for text in texts for found in re.findall(r"default: \d+", text)] == []


def test_no_limit_stands_beside_the_header_in_the_library() -> None:
    assert len(NATIVE) == 4
    found = [
        f"{path.name}: {match}"
        for path in NATIVE
        for match in re.findall(r"constexpr .*?= *[\d(].*", path.read_text(encoding="utf-8"))
    ]
    assert found == []
