"""The tables of ``pilotfish bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotfish.runtime.bench import PLAIN
from pilotfish.runtime.memory import format_bytes
from pilotfish.runtime.option_checks import is_greedy
from pilotfish.runtime.report.answer_sections import optional_text
from pilotfish.runtime.speculation import REJECTION

from .console import note, out, show, table

if TYPE_CHECKING:
    from collections.abc import Callable


def show_bench(report: dict[str, Any]) -> None:
    """Speed by mode, passes beside the roofline, categories, sweeps and notes."""
    runs = report["runs"]
    header = ("", *(run["mode"] for run in runs))
    rows = [(name, *(value(run) for run in runs)) for name, value in _RUN_ROWS.items()]
    out().print(table(report["bundle"]["path"], header, rows))
    if len(runs) > 1:
        speedups = ", ".join(f"{run['mode']} is {run['ratio']['median']:.2f} x plain" for run in runs[1:])
        show(f"{speedups}, outputs are {_comparison(report)}")
    _show_passes(report)
    if len(report["categories"]) > 1:
        _show_categories(report)
    _show_sweeps(report)
    machine = report["machine"]
    plan = format_bytes(report["memory"]["planned_bytes"])
    show(
        f"{machine['cpu']}, {report['settings']['threads']} threads, {machine['kernels']} kernels, "
        f"ONNX Runtime {machine['onnxruntime']}, peak memory {format_bytes(report['memory']['peak_bytes'])} "
        f"(planned {plan}), loaded in {report['load']['seconds']:.2f} s"
    )
    for line in report["notes"]:
        note(f"note: {line}")


def _show_passes(report: dict[str, Any]) -> None:
    first, rates = report["verify_ms"]["1"], report["roofline"]
    floors = rates["floor_ms"]
    rows = [
        (f"target, rows: {rows}", f"{time:.2f}", f"{time / first:.2f}", f"{floors[rows]:.2f}")
        for rows, time in report["verify_ms"].items()
    ]
    if report["draft_ms"] is not None:
        rows.append(("draft, rows: 1", f"{report['draft_ms']:.2f}", f"{report['draft_ms'] / first:.2f}", ""))
    out().print(table(f"one pass after {report['pass_context']} tokens", ("", "ms", "of 1 row", "floor, ms"), rows))
    show(
        f"one row reads {rates['bytes_reached'] / 1e9:.1f} GB/s, {rates['bytes_reached_share']:.0%} of the "
        f"{rates['bytes_per_second'] / 1e9:.1f} GB/s that this machine gave; passes of many rows "
        f"do up to {rates['operations_per_second'] / 1e9:.0f} billion operations a second"
    )


def _show_categories(report: dict[str, Any]) -> None:
    modes = [run["mode"] for run in report["runs"]]
    details = report["category_details"]
    rows = [
        (
            name,
            f"{speeds['plain']:.1f}",
            *(f"{details[name][mode]['speedup']:.2f} x" for mode in modes if mode != PLAIN),
        )
        for name, speeds in report["categories"].items()
    ]
    out().print(table("by category, medians", ("category", "plain tokens/s", *modes[1:]), rows))


def _show_sweeps(report: dict[str, Any]) -> None:
    if report["contexts"]:
        header = ("context", "first token, ms", "plain tokens/s", "pass of 1, ms", "of 8, ms", "of 16, ms")
        rows = [
            (
                str(each["context"]),
                f"{each['ttft_ms']:.1f}",
                f"{each['tokens_per_s']:.1f}",
                *(f"{each['verify_ms'][count]:.2f}" for count in ("1", "8", "16")),
            )
            for each in report["contexts"]
        ]
        out().print(table("by length of the context", header, rows))
    if report["sequences"]:
        header = ("mode", "at once", "tokens/s in all", "tokens/s each", "gap p50, ms", "gap p95, ms")
        rows = [
            (
                each["mode"],
                str(each["num_sequences"]),
                f"{each['tokens_per_s']:.1f}",
                f"{each['tokens_per_s_each']:.1f}",
                f"{each['gap_ms']['p50']:.1f}",
                f"{each['gap_ms']['p95']:.1f}",
            )
            for each in report["sequences"]
        ]
        out().print(table("several generations at once", header, rows))


def _comparison(report: dict[str, Any]) -> str:
    settings = report["settings"]
    if report["outputs_equal"]:
        return "the same"
    may_differ = settings["acceptance"] == REJECTION and not is_greedy(settings["temperature"])
    return "others of the same distribution, by rejection" if may_differ else "DIFFERENT"


def _ratio(run: dict[str, Any]) -> str:
    ratio = run["ratio"]
    if run["mode"] == PLAIN:
        return ""
    return f"{ratio['median']:.2f}" + ("" if ratio["conclusive"] else " (?)")


def _range(run: dict[str, Any]) -> str:
    ratio = run["ratio"]
    return "" if run["mode"] == PLAIN or ratio["low"] is None else f"{ratio['low']:.2f} .. {ratio['high']:.2f}"


_RUN_ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "tokens/s, median": lambda run: f"{run['tokens_per_s']['median']:.1f}",
    "tokens/s, lowest": lambda run: f"{run['tokens_per_s']['min']:.1f}",
    "tokens/s, highest": lambda run: f"{run['tokens_per_s']['max']:.1f}",
    "x plain, median": _ratio,
    "x plain, 95 % sure": _range,
    "x plain, all prompts": lambda run: "" if run["mode"] == PLAIN else f"{run['ratio_of_all']:.2f}",
    "x plain, predicted": lambda run: "" if run["mode"] == PLAIN else optional_text(run["predicted_ratio"], "{:.2f}"),
    "first token, ms": lambda run: f"{run['ttft_ms']:.1f}",
    "ms a token, median": lambda run: f"{run['tpot_ms']['p50']:.2f}",
    "ms a token, 99th percentile": lambda run: f"{run['tpot_ms']['p99']:.2f}",
    "gap, ms: p50 / p95 / p99": lambda run: " / ".join(f"{run['gap_ms'][name]:.1f}" for name in ("p50", "p95", "p99")),
    "acceptance rate": lambda run: optional_text(run["acceptance_rate"], "{:.1%}"),
    "tokens a round": lambda run: optional_text(run["acceptance_length"], "{:.2f}"),
    "drafting": lambda run: f"{run['shares']['draft']:.1%}",
    "verifying": lambda run: f"{run['shares']['verify']:.1%}",
    "accepting": lambda run: f"{run['shares']['accept']:.1%}",
    "everything else": lambda run: f"{run['shares']['rest']:.1%}",
    "joules a token": lambda run: optional_text(run["joules_per_token"], "{:.3f}"),
}
