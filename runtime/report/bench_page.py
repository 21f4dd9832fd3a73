"""The page of ``pilotfish bench``: the numbers of its report with charts."""

from __future__ import annotations

from typing import Any

from pilotfish.runtime.bench import PLAIN
from pilotfish.runtime.memory import format_bytes

from .answer_sections import (
    PARTS,
    add_acceptance,
    add_memory_section,
    add_settings,
    add_sweeps,
    add_timeline,
    optional_text,
)
from .page import Page
from .svg import Bar, Line, bars, legend, lines, segments


def bench_page(report: dict[str, Any]) -> Page:
    """The page of a report."""
    bundle, machine = report["bundle"], report["machine"]
    device = machine.get("gpu", machine["cpu"])
    page = Page(
        f"pilotfish bench: {bundle['path']}",
        f"{device}, {bundle['threads']} threads, {machine['kernels']} kernels, pilotfish {machine['pilotfish']}, "
        f"ONNX Runtime {machine['onnxruntime']}",
    )
    for line in report["notes"]:
        page.note(line)
    add_bench(page, report)
    return page


def add_bench(page: Page, report: dict[str, Any]) -> None:
    """All sections of a benchmark."""
    _add_speed(page, report)
    _add_kinds(page, report)
    _add_waiting(page, report)
    _add_passes(page, report)
    add_acceptance(page, report)
    add_timeline(page, report)
    add_sweeps(page, report)
    add_memory_section(page, report)
    add_settings(page, report)


def _add_speed(page: Page, report: dict[str, Any]) -> None:
    runs = report["runs"]
    page.section("Speed")
    plain = runs[0]["tokens_per_s"]["median"]
    best = max(runs, key=lambda run: run["ratio"]["median"])
    page.paragraph(
        f"Plain decoding gives {plain:.1f} tokens a second here (median over the prompts). The fastest way to decode "
        f"is {best['mode']}, at {best['ratio']['median']:.2f} times plain."
    )
    drawn = [
        Bar(
            run["mode"],
            run["ratio"]["median"],
            f"{run['ratio']['median']:.2f} x" + ("" if run["ratio"]["conclusive"] or run["mode"] == PLAIN else " (?)"),
            index,
            run["ratio"]["low"],
            run["ratio"]["high"],
        )
        for index, run in enumerate(runs)
    ]
    page.chart(
        "speed",
        "Speed relative to plain decoding of the same prompt: median, and the interval that holds it with 95 % "
        "confidence. A (?) marks those whose spread forbids a conclusion whether they are faster than plain decoding.",
        bars("Speed by mode, relative to plain decoding", [("", drawn)], mark=1.0),
    )
    _add_speed_table(page, runs)


def _add_speed_table(page: Page, runs: list[dict[str, Any]]) -> None:
    header = ("mode", "tokens/s", "lowest", "highest", "x plain", "predicted", "first token, ms", "joules a token")
    page.table(
        header,
        [
            (
                run["mode"],
                f"{run['tokens_per_s']['median']:.1f}",
                f"{run['tokens_per_s']['min']:.1f}",
                f"{run['tokens_per_s']['max']:.1f}",
                f"{run['ratio']['median']:.2f}",
                optional_text(run["predicted_ratio"], "{:.2f}"),
                f"{run['ttft_ms']:.1f}",
                optional_text(run["joules_per_token"], "{:.3f}"),
            )
            for run in runs
        ],
    )


def _add_kinds(page: Page, report: dict[str, Any]) -> None:
    details = report["category_details"]
    modes = [run["mode"] for run in report["runs"]]
    if len(details) < 2 or len(modes) < 2:  # noqa: PLR2004 - one kind, or one mode, has nothing to compare
        return
    page.section("By kind of prompt")
    groups = [
        (
            kind,
            [
                Bar(mode, found[mode]["speedup"], f"{found[mode]['speedup']:.2f} x", index)
                for index, mode in enumerate(modes)
                if mode != PLAIN
            ],
        )
        for kind, found in details.items()
    ]
    page.chart(
        "kinds",
        "Speed relative to plain decoding, median by kind of prompt.",
        bars("Speed by kind of prompt, relative to plain decoding", groups, mark=1.0),
    )


def _add_waiting(page: Page, report: dict[str, Any]) -> None:
    page.section("What a reader waits")
    page.paragraph(
        "The tokens of a round come together. A gap is the time from one round's tokens to the next one's, and jitter "
        "the mean difference between neighbouring gaps."
    )
    names = ("p50", "p95", "p99", "jitter")
    page.table(
        ("mode", *(f"gap {name}, ms" if name != "jitter" else "jitter, ms" for name in names), "ms a token"),
        [
            (run["mode"], *(f"{run['gap_ms'][name]:.2f}" for name in names), f"{run['tpot_ms']['p50']:.2f}")
            for run in report["runs"]
        ],
    )
    rows = [
        (
            run["mode"],
            [(run["shares"][key], colour, f"{name}: {run['shares'][key]:.1%}") for name, key, colour in PARTS],
        )
        for run in report["runs"]
    ]
    page.chart(
        "shares",
        "Where the time from the first token to the last goes: "
        + "; ".join(
            f"{run['mode']} " + ", ".join(f"{name} {run['shares'][key]:.1%}" for name, key, _ in PARTS)
            for run in report["runs"][-1:]
        ),
        segments("Shares of drafting, verifying, accepting and everything else", rows),
        legend([(name, colour) for name, _, colour in PARTS]),
    )


def _add_passes(page: Page, report: dict[str, Any]) -> None:
    rates = report["roofline"]
    page.section("What a pass costs, and what the machine allows")
    page.paragraph(
        f"A pass of one row reads {format_bytes(rates['bytes_per_pass'])} of weights and cache, at "
        f"{rates['bytes_reached'] / 1e9:.1f} GB/s: {rates['bytes_reached_share']:.0%} of the "
        f"{rates['bytes_per_second'] / 1e9:.1f} GB/s that threads which do nothing else read here in this "
        f"run. {_about_caches(rates)}Passes of many rows, up to {rates['wide_rows']}, do up to "
        f"{rates['operations_per_second'] / 1e9:.0f} billion operations a second, which counts as the peak; numpy's "
        f"product of float32 matrices does {rates['float32_operations_per_second'] / 1e9:.0f} billion."
    )
    points = tuple((float(rows), time) for rows, time in report["verify_ms"].items())
    floor = tuple((float(rows), time) for rows, time in rates["floor_ms"].items())
    drawn = [
        Line("a pass of the target, measured", points, 0),
        Line("the least by bandwidth and operations (roofline)", floor, 4, is_dashed=True),
    ]
    if report["draft_ms"] is not None:
        flat = tuple((x, report["draft_ms"]) for x, _ in points)
        drawn.append(Line("one row of the draft model", flat, 2, is_dashed=True))
    page.chart(
        "passes",
        f"Milliseconds of a pass by its rows, after {report['pass_context']} tokens of context.",
        lines("Cost of a pass by rows, with the roofline", drawn, "rows", "milliseconds"),
    )
    first = report["verify_ms"]["1"]
    page.table(
        ("rows", "ms", "of one row", "floor, ms"),
        [
            (rows, f"{time:.2f}", f"{time / first:.2f}", f"{rates['floor_ms'][rows]:.2f}")
            for rows, time in report["verify_ms"].items()
        ],
    )


def _about_caches(rates: dict[str, Any]) -> str:
    if rates["bytes_reached_share"] <= 1:
        return ""
    return "More than all of it can be had because the processor's caches keep a part of the weights between passes. "
