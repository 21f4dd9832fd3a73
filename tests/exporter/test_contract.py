"""exporter/contract.py spells what native/GRAPH.md says."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from pilotfish.exporter import contract, manifest
from pilotfish.exporter.passes.check import ROW_WISE
from pilotfish.runtime.manifest import DraftTrial

GRAPH = Path(__file__).parents[2] / "native" / "GRAPH.md"


@pytest.fixture(scope="module")
def text() -> str:
    return GRAPH.read_text(encoding="utf-8")


def table(text: str, header: str) -> list[list[str]]:
    """Rows of the table that begins with `header`, cells stripped."""
    lines = text[text.index(header) :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_inputs_in_order(text: str) -> None:
    rows = table(text, "| name | type, shape | meaning |")
    plain = [row for row in rows if "cache" not in row[0] and "logits" not in row[0]]
    assert [row[0].strip("`") for row in plain] == [port.name for port in contract.INPUTS]
    for row, port in zip(plain, contract.INPUTS, strict=True):
        dtype, axes = re.match(r"(\w+) \[(.*?)\]", row[1]).groups()
        assert dtype == port.dtype
        if port.name != "tree_mask":  # [num_tokens] or [0]: an axis of its own
            assert axes == ", ".join(str(axis) for axis in port.axes)


def test_caches_and_logits(text: str) -> None:
    rows = table(text, "| name | type, shape | meaning |")
    cache = next(row for row in rows if "cache" in row[0])
    assert cache[0] == f"`{contract.key_cache('{i}')}`, `{contract.value_cache('{i}')}`"
    *dtypes, last = contract.CACHE_TYPES
    assert cache[1] == f"{', '.join(dtypes)} or {last} [{', '.join(contract.CACHE_AXES)}]"
    port = contract.logits_port()
    assert rows[-1][:2] == [f"-> `{port.name}`", f"{port.dtype} [{', '.join(port.axes)}]"]


def test_formats_and_group_sizes(text: str) -> None:
    rows = table(text, "| format | bytes a group | layout of a group |")
    assert {row[0].strip("`"): int(row[1]) for row in rows} == contract.GROUP_BYTES
    tile, block, group = re.search(
        r"(\d+) output rows are a \*tile\*, (\d+) input columns a \*block\*, (\d+)", text
    ).groups()
    assert (int(tile), int(block), int(group)) == (contract.TILE_ROWS, contract.BLOCK_COLUMNS, contract.GROUP_COLUMNS)


@pytest.mark.parametrize(("op", "attributes"), [(op, names) for op, names in contract.OPERATORS.items() if names])
def test_operator_attributes(text: str, op: str, attributes: tuple[str, ...]) -> None:
    item = text[text.index(f"* `{op}(") :].split("\n*", maxsplit=1)[0]
    listed = item[item.index("attribute") :].split(".\n")[0].split(";\n")[0]
    assert set(attributes) <= set(re.findall(r"`(\w+)`", listed))


def test_a_join_has_as_many_inputs(text: str) -> None:
    assert f"* `Join(x0 f32, ..., x{contract.MOST_JOINED - 1}?)" in text


def test_steps_of_rows(text: str) -> None:
    """Kinds in the order of their numbers, and limits, as GRAPH.md and the header have them."""
    listed = [name for row in table(text, "| number | kind | value |") for name in re.findall(r"`(\w+)`", row[1])]
    assert tuple(listed) == contract.ROW_STEP_KINDS
    header = (GRAPH.parent / "src" / "base" / "row_program.h").read_text(encoding="utf-8")
    kinds = re.findall(r"^  k(\w+),  +//", header, re.MULTILINE)
    assert [re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name in kinds] == listed
    limits = dict(re.findall(r"kMostRow(Inputs|Outputs|Steps) = (\d+);", header))
    expected = (contract.MOST_ROW_INPUTS, contract.MOST_ROW_OUTPUTS, contract.MOST_ROW_STEPS)
    assert tuple(int(limits[name]) for name in ("Inputs", "Outputs", "Steps")) == expected
    assert f"1 to {expected[0]} inputs and 1 to {expected[1]} outputs" in text
    assert f"Up to {expected[2]} steps" in text


def test_domain_and_versions(text: str) -> None:
    assert f"(domain `{contract.DOMAIN}`, version {contract.DOMAIN_VERSION})" in text
    assert f'"format": "{contract.BUNDLE_FORMAT}", "format_version": {contract.BUNDLE_VERSION}' in text
    assert f"multiples of {contract.TENSOR_ALIGNMENT}" in text


def test_ports_of_heads(text: str) -> None:
    rows, stream = table(text, "| port with a head | type, shape | meaning |")
    port = contract.HIDDEN_ROWS
    assert rows[:2] == [f"`{port.name}`", f"{port.dtype} [{', '.join(map(str, port.axes))}]"]
    port = contract.aux_hidden_port(7)
    assert stream[0] == f"-> `{contract.aux_hidden('{k}')}`"
    assert port.name == "aux_hidden.7"
    assert stream[1] == f"{port.dtype} [{', '.join(map(str, port.axes))}]"


def test_the_manifest_has_the_documented_fields(text: str) -> None:
    example = json.loads(text[text.index("```json") + 7 :].split("```", maxsplit=1)[0])
    documented = {
        manifest.ModelEntry: example["models"]["target"],
        manifest.HeadEntry: example["head"],
        manifest.HeadCacheEntry: example["head"]["cache"],
        manifest.TapReference: example["models"]["target"]["tap_reference"],
        manifest.LoweredEntry: example["models"]["target"]["lowered"],
        manifest.CacheEntry: example["models"]["target"]["caches"][0],
        DraftTrial: example["models"]["target"]["trials"][0],
    }
    for kind, fields in documented.items():
        assert sorted(fields) == sorted(field.name for field in dataclasses.fields(kind))


def test_the_loader_allows_every_operator_that_the_exporter_writes() -> None:
    """The list of native/src/bundle/graph_operators.cpp, which says how the sizes of each are bounded."""
    source = (GRAPH.parent / "src" / "bundle" / "graph_operators.cpp").read_text(encoding="utf-8")
    allowed = set(re.findall(r'\{"", "(\w+)", k\w+\}', source))
    assert len(allowed) > 40
    assert set(ROW_WISE) <= allowed
