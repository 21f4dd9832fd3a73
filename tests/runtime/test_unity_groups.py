"""Sources that are compiled as one translation unit share no name of an unnamed namespace."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).parents[2] / "native"


def program() -> Any:
    path = NATIVE / "cmake" / "unity_groups.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = """namespace pilotfish {
namespace {

constexpr int kLimit = 3;
constexpr std::array kTable{1, 2};

struct Local {
  int member = 0;
};

template <typename T>
[[noreturn]] void fail(T value) {
  throw value;
}

}  // namespace

int shared(int value) { return value; }

}  // namespace pilotfish
"""


def test_every_name_of_an_unnamed_namespace_is_found() -> None:
    names = program().local_names(SOURCE)
    assert {"kLimit", "kTable", "Local", "fail"} <= names
    assert not names & {"member", "shared"}


def test_sources_with_a_common_name_are_apart(tmp_path: Path) -> None:
    texts = [SOURCE, "int free;\n", "namespace {\n\nvoid fail();\n\n}  // namespace\n", SOURCE]
    sources = [tmp_path / f"{index}.cpp" for index in range(len(texts))]
    for source, text in zip(sources, texts, strict=True):
        source.write_text(text, encoding="utf-8")
    assert program().unity_groups(sources) == [0, 0, 1, 2]


def test_the_library_needs_few_groups() -> None:
    groups = program().unity_groups(sorted((NATIVE / "src").rglob("*.cpp")))
    assert len(groups) > 100
    assert max(groups) < 20
