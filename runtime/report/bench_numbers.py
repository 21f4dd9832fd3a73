"""What ``pilotfish bench`` measured -> its report, which tables, JSON and page show; docs/report.md explains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pilotfish.runtime.bench import PLAIN
from pilotfish.runtime.bench_report import SCHEMA, categories, category_details, outputs_equal, summarise_all
from pilotfish.runtime.bench_sensors import BUSY_SHARE, compare_readings
from pilotfish.runtime.machine import describe_machine
from pilotfish.runtime.memory import MEMORY_PARTS

if TYPE_CHECKING:
    from pilotfish.bindings import EngineInfo
    from pilotfish.runtime.bench import Measured
    from pilotfish.runtime.bench_passes import PassTimes, Roofline
    from pilotfish.runtime.bench_prompts import PromptSet
    from pilotfish.runtime.bench_sensors import Reading
    from pilotfish.runtime.engine import Engine


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything that a benchmark measured."""

    prompts: PromptSet
    measured: Measured
    passes: PassTimes
    roofline: Roofline
    readings: tuple[Reading, Reading]
    """Before and after the generations."""
    energy_source: str | None
    timeline: dict[str, Any]
    """The mode, the prompt's index and the rounds."""
    sequences: list[dict[str, Any]]
    contexts: list[dict[str, Any]]
    peak_memory_bytes: int


def assemble(engine: Engine, path: str, device: str, found: Measurement) -> dict[str, Any]:
    """The report, without how it was asked for and what loading took."""
    samples, passes = found.measured.samples, found.passes
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": describe_machine(device),
        "bundle": _describe_bundle(engine, path),
        "prompts": _describe_prompts(found),
        "runs": summarise_all(samples, found.peak_memory_bytes),
        "categories": categories(samples),
        "category_details": category_details(samples),
        "outputs_equal": outputs_equal(samples),
        "pass_context": passes.context,
        "verify_ms": {str(rows): time for rows, time in passes.verify_ms.items()},
        "draft_ms": passes.draft_ms,
        "roofline": _describe_roofline(found.roofline, passes),
        "memory": _describe_memory(engine.info, found.peak_memory_bytes),
        "conditions": compare_readings(*found.readings) | {"energy_source": found.energy_source},
        "timeline": found.timeline,
        "sequences": found.sequences,
        "contexts": found.contexts,
    }
    report["notes"] = notes_of(report)
    return report


def notes_of(report: dict[str, Any]) -> list[str]:
    """What a reader has to know before the numbers are believed."""
    notes = []
    conditions, prompts = report["conditions"], report["prompts"]
    if conditions["is_busy"]:
        notes.append(
            f"other programs used {conditions['busy_share_of_others']:.0%} of the processors (more than "
            f"{BUSY_SHARE:.0%}): repeat it on a quiet machine before numbers are believed"
        )
    if conditions["throttled"]:
        notes.append("the device slowed itself down during the run, for heat or power: let it cool, and repeat it")
    notes += [
        f"{run['mode']}: {_why_inconclusive(run['ratio'])}"
        for run in report["runs"]
        if run["mode"] != PLAIN and not run["ratio"]["conclusive"]
    ]
    if prompts["too_long"]:
        notes.append(f"{prompts['too_long']} prompt(s) left out: too long for the context")
    if prompts["too_short"]:
        notes.append(f"{prompts['too_short']} answer(s) left out: a single token leaves nothing to time")
    if prompts["not_reached_first"]:
        notes.append(f"the time sufficed for {prompts['measured']} of {prompts['count']} prompts")
    if conditions["energy_source"] is None:
        notes.append("energy: this device does not tell (no RAPL counter may be read, no NVML)")
    return notes


def _why_inconclusive(ratio: dict[str, Any]) -> str:
    if ratio["low"] is None:
        return "fewer than six pairs of runs allow no conclusion whether it is faster than plain decoding"
    return (
        f"the spread ({ratio['low']:.2f} to {ratio['high']:.2f} times plain) forbids a conclusion whether it is faster "
        "than plain decoding"
    )


def _describe_prompts(found: Measurement) -> dict[str, Any]:
    plain = found.measured.samples[PLAIN]
    measured = {sample.prompt_index for sample in plain}
    return {
        "name": found.prompts.name,
        "sha256": found.prompts.digest,
        "count": len(found.prompts.prompts),
        "measured": len(measured),
        "order": [sample.prompt_index for sample in plain],
        "too_long": found.prompts.num_too_long,
        "too_short": found.measured.num_too_short,
        "not_reached": found.measured.num_not_reached,
        "not_reached_first": len(measured) + found.measured.num_too_short < len(found.prompts.prompts),
    }


def _describe_bundle(engine: Engine, path: str) -> dict[str, Any]:
    models = {
        model.role: {"source": model.source, "parameters": model.parameters, "formats": model.formats}
        for model in engine.manifest.models
    }
    head = engine.manifest.head
    return {
        "path": path,
        "models": models,
        "head": None if head is None else {"kind": head.kind, "source": head.source, "parameters": head.parameters},
        "threads": engine.info.num_threads,
        "context": engine.info.max_context,
    }


def _describe_roofline(rates: Roofline, passes: PassTimes) -> dict[str, Any]:
    reached = rates.bytes_reached(passes.verify_ms[1])
    return {
        "bytes_per_pass": rates.bytes_per_pass,
        "operations_per_row": rates.operations_per_row,
        "bytes_per_second": rates.bytes_per_second,
        "bytes_reached": reached,
        "bytes_reached_share": reached / rates.bytes_per_second,
        "operations_per_second": rates.operations_per_second,
        "float32_operations_per_second": rates.float32_operations_per_second,
        "wide_rows": passes.wide_rows,
        "wide_ms": passes.wide_ms,
        "floor_ms": {str(rows): rates.floor_ms(rows) for rows in passes.verify_ms},
    }


def _describe_memory(info: EngineInfo, peak: int) -> dict[str, Any]:
    parts = {name: getattr(info, field) for name, field in MEMORY_PARTS.items()}
    return {
        "planned_bytes": info.total_bytes,
        "peak_bytes": peak,
        "parts": {name: size for name, size in parts.items() if size},
    }
