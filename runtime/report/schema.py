"""Reads reports that commands wrote with --json, and refuses those of another kind or version."""

from __future__ import annotations

import json
from typing import Any

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.bench_report import SCHEMA
from pilotfish.runtime.files import read_text

# What comparisons read, by its path: a list's elements all have it.
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "machine": dict,
    "bundle.path": str,
    "settings": dict,
    "prompts.sha256": str,
    "prompts.order": list,
    "runs": list,
    "runs.mode": str,
    "runs.speeds": list,
    "runs.ttft_ms": (int, float),
    "runs.acceptance_rate": (int, float, type(None)),
    "runs.acceptance_length": (int, float, type(None)),
    "verify_ms": dict,
    "memory.peak_bytes": int,
    "load.seconds": (int, float),
    "conditions.is_busy": bool,
}


def read_bench_report(path: str) -> dict[str, Any]:
    """The report in a file.

    Raises:
        InvalidArgumentError: the file cannot be read, is no report of `pilotfish bench`, or one of another version.
    """
    try:
        report = json.loads(read_text("the report", path))
    except ValueError as error:
        raise InvalidArgumentError(f"{path} is no JSON ({error}): give a file of pilotfish bench --json") from error
    found = report.get("schema") if isinstance(report, dict) else None
    if found != SCHEMA:
        raise InvalidArgumentError(
            f"{path} has the schema {found!r}, must be {SCHEMA!r}: measure again with this version's pilotfish bench"
        )
    for name, kinds in _FIELDS.items():
        _check(path, report, name, kinds)
    for run in report["runs"]:
        if len(run["speeds"]) != len(report["prompts"]["order"]) or not all(_is_speed(each) for each in run["speeds"]):
            raise InvalidArgumentError(
                f"{path}: speeds of the mode {run['mode']!r} must be one above 0 for each prompt"
            )
    return dict(report)


def _check(path: str, report: dict[str, Any], name: str, kinds: type | tuple[type, ...]) -> None:
    values: list[Any] = [report]
    for key in name.split("."):
        values = [inner for value in values for inner in (value if isinstance(value, list) else [value])]
        if not all(isinstance(value, dict) and key in value for value in values):
            raise InvalidArgumentError(f"{path} has no field {name}: it is damaged, or not of pilotfish bench")
        values = [value[key] for value in values]
    if not all(isinstance(value, kinds) for value in values):
        raise InvalidArgumentError(
            f"{path} has a field {name} of another type: it is damaged, or not of pilotfish bench"
        )


def _is_speed(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
