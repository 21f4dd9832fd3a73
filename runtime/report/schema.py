"""Reads reports that commands wrote with --json, and refuses those of another kind or version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.bench_report import SCHEMA
from pilotfish.runtime.files import parse_json, read_text
from pilotfish.runtime.option_checks import shown

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 1e15  # of any number: what is larger was not measured
_LEAST_SPEED = 1e-6


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MOST


def _is_number_or_none(value: object) -> bool:
    return value is None or _is_number(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _are_indices(value: object) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


# What comparisons read, by its path: a list's elements all have it.
_FIELDS: dict[str, Callable[[object], bool]] = {
    "machine": _is_object,
    "bundle.path": _is_text,
    "settings": _is_object,
    "prompts.sha256": _is_text,
    "prompts.order": _are_indices,
    "runs": lambda value: isinstance(value, list) and bool(value),
    "runs.mode": _is_text,
    "runs.speeds": lambda value: isinstance(value, list),
    "runs.ttft_ms": _is_number,
    "runs.acceptance_rate": _is_number_or_none,
    "runs.acceptance_length": _is_number_or_none,
    "verify_ms": _are_numbers,
    "memory.peak_bytes": _is_number,
    "load.seconds": _is_number,
    "conditions.is_busy": lambda value: isinstance(value, bool),
}


def read_bench_report(path: str) -> dict[str, Any]:
    """The report in a file.

    Raises:
        InvalidArgumentError: the file cannot be read, is no report of `pilotfish bench`, or one of another version.
    """
    try:
        report = parse_json(read_text("the report", path))
    except ValueError as error:
        raise InvalidArgumentError(f"{path} is no JSON ({error}): give a file of pilotfish bench --json") from error
    found = report.get("schema") if isinstance(report, dict) else None
    if found != SCHEMA:
        raise InvalidArgumentError(
            f"{path} has the schema {shown(found)}, must be {SCHEMA!r}: measure again with this version's pilotfish "
            "bench"
        )
    for name, is_valid in _FIELDS.items():
        _check(path, report, name, is_valid)
    num_turns = len(report["prompts"]["order"])
    for run in report["runs"]:
        if not run["speeds"] or len(run["speeds"]) != num_turns or not all(map(_is_speed, run["speeds"])):
            raise InvalidArgumentError(
                f"{path}: speeds of the mode {shown(run['mode'])} must be one above 0 for each prompt"
            )
    modes = [run["mode"] for run in report["runs"]]
    if len(set(modes)) < len(modes):
        raise InvalidArgumentError(f"{path} has a mode twice: {shown(modes)}")
    return dict(report)


def _check(path: str, report: dict[str, Any], name: str, is_valid: Callable[[object], bool]) -> None:
    values: list[Any] = [report]
    for key in name.split("."):
        values = [inner for value in values for inner in (value if isinstance(value, list) else [value])]
        if not all(isinstance(value, dict) and key in value for value in values):
            raise InvalidArgumentError(f"{path} has no field {name}: it is damaged, or not of pilotfish bench")
        values = [value[key] for value in values]
    wrong = [value for value in values if not is_valid(value)]
    if wrong:
        raise InvalidArgumentError(
            f"{path} has a field {name} of another type or range, {shown(wrong[0])}: it is damaged, or not of "
            "pilotfish bench"
        )


def _is_speed(value: object) -> bool:
    return _is_number(value) and isinstance(value, (int, float)) and value > _LEAST_SPEED
