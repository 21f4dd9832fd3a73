"""The page of ``pilotfish bench``: the numbers of its report with charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotfish.runtime.memory import format_bytes
from pilotfish.runtime.token_origins import ORIGINS

from .page import Page
from .svg import Bar, Line, bars, legend, lines, segments

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARTS = (
    ("drafting", "draft", 2),
    ("verifying", "verify", 0),
    ("accepting", "accept", 1),
    ("everything else", "rest", 7),
)
_ORIGIN_COLOURS: dict[str, int | None] = {"plain": None, "lookup": 2, "draft": 0, "head": 6, "corrected": 4}
_ROUNDS_A_ROW = 8


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
    _add_acceptance(page, report)
    _add_timeline(page, report)
    _add_sweeps(page, report)
    _add_memory(page, report)
    _add_settings(page, report)


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
            f"{run['ratio']['median']:.2f} x"
            + ("" if run["ratio"]["conclusive"] or run["mode"] == "plain" else " (?)"),
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
                _optional(run["predicted_ratio"], "{:.2f}"),
                f"{run['ttft_ms']:.1f}",
                _optional(run["joules_per_token"], "{:.3f}"),
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
                if mode != "plain"
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
            [(run["shares"][key], colour, f"{name}: {run['shares'][key]:.1%}") for name, key, colour in _PARTS],
        )
        for run in report["runs"]
    ]
    page.chart(
        "shares",
        "Where the time from the first token to the last goes: "
        + "; ".join(
            f"{run['mode']} " + ", ".join(f"{name} {run['shares'][key]:.1%}" for name, key, _ in _PARTS)
            for run in report["runs"][-1:]
        ),
        segments("Shares of drafting, verifying, accepting and everything else", rows),
        legend([(name, colour) for name, _, colour in _PARTS]),
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


def _add_acceptance(page: Page, report: dict[str, Any]) -> None:
    runs = [run for run in report["runs"] if run["acceptance_by_position"]]
    if not runs:
        return
    page.section("Acceptance")
    groups = [
        (
            run["mode"],
            [
                Bar(f"token {place}", rate, f"{rate:.0%}", index)
                for place, rate in enumerate(run["acceptance_by_position"][:8], 1)
            ],
        )
        for index, run in enumerate(report["runs"])
        if run in runs
    ]
    page.chart(
        "acceptance",
        "Share of rounds that accepted the k-th drafted token, of those that accepted the ones before (of rounds that "
        "drafted nothing too, which is why auto can be below its sources).",
        bars("Acceptance by position", groups),
    )
    rows = [
        (
            run["mode"],
            _optional(run["acceptance_rate"], "{:.1%}"),
            f"{run['acceptance_length']:.2f}",
            ", ".join(
                f"{source} {counts['accepted']} of {counts['drafted']}"
                for source, counts in run["acceptance_by_source"].items()
            ),
        )
        for run in runs
    ]
    page.table(("mode", "accepted", "tokens a round", "accepted of drafted, by source"), rows)


def _add_timeline(page: Page, report: dict[str, Any]) -> None:
    rounds = report["timeline"]["rounds"]
    if not rounds:
        return
    page.section(f"Rounds of one answer ({report['timeline']['mode']})")
    rows = []
    for start in range(0, len(rounds), _ROUNDS_A_ROW):
        chosen = rounds[start : start + _ROUNDS_A_ROW]
        rows.append((f"from {chosen[0]['start_ms']:.0f} ms", [part for each in chosen for part in _segments(each)]))
    page.chart(
        "timeline",
        f"The first {len(rounds)} rounds, {_ROUNDS_A_ROW} a row; each begins with its drafting, where it drafted.",
        segments("Timeline of rounds", rows),
        legend([(name, colour) for name, _, colour in _PARTS]),
    )
    page.heading("Its tokens, by origin")
    add_tokens(page, [(text, origin) for each in rounds for text, origin in each["tokens"]])


def add_tokens(page: Page, tokens: Sequence[tuple[str, str]]) -> None:
    """A text whose tokens are coloured by their origins, and what the colours mean."""
    page.coloured((text, _ORIGIN_COLOURS[origin]) for text, origin in tokens)
    counts = ", ".join(
        f"{name} {number}" for name in ORIGINS if (number := sum(origin == name for _, origin in tokens))
    )
    page.coloured([(f" {name} ", _ORIGIN_COLOURS[name]) for name in ORIGINS])
    page.paragraph(f"Tokens by origin: {counts}.")


def _segments(each: dict[str, Any]) -> list[tuple[float, int, str]]:
    what = f"{len(each['tokens'])} token(s), {each['num_drafted']} drafted"
    return [
        (each[f"{key}_ms"], colour, f"{name} {each[f'{key}_ms']:.2f} ms; the round: {what}")
        for name, key, colour in _PARTS
    ]


def _add_sweeps(page: Page, report: dict[str, Any]) -> None:
    if report["contexts"]:
        page.section("By length of the context")
        points = tuple((float(each["context"]), each["tokens_per_s"]) for each in report["contexts"])
        page.chart(
            "contexts",
            "Plain decoding after prompts of these lengths.",
            lines("Speed by context", [Line("plain decoding", points, 0)], "tokens of context", "tokens a second"),
        )
        page.table(
            ("context", "first token, ms", "plain tokens/s", *(f"pass of {n}, ms" for n in ("1", "4", "16"))),
            [
                (
                    str(each["context"]),
                    f"{each['ttft_ms']:.1f}",
                    f"{each['tokens_per_s']:.1f}",
                    *(f"{each['verify_ms'][rows]:.2f}" for rows in ("1", "4", "16")),
                )
                for each in report["contexts"]
            ],
        )
    if report["sequences"]:
        page.section("Several generations at once")
        page.table(
            ("mode", "at once", "tokens/s in all", "each", "gap p50, ms", "gap p95, ms", "gap p99, ms"),
            [
                (
                    each["mode"],
                    str(each["num_sequences"]),
                    f"{each['tokens_per_s']:.1f}",
                    f"{each['tokens_per_s_each']:.1f}",
                    *(f"{each['gap_ms'][name]:.1f}" for name in ("p50", "p95", "p99")),
                )
                for each in report["sequences"]
            ],
        )


def _add_memory(page: Page, report: dict[str, Any]) -> None:
    memory = report["memory"]
    page.section("Memory")
    add_memory(page, memory["parts"], memory["planned_bytes"], memory["peak_bytes"])
    page.paragraph(
        f"Planned: {format_bytes(memory['planned_bytes'])}. The process's largest resident set: "
        f"{format_bytes(memory['peak_bytes'])}, of which {format_bytes(report['load']['resident_bytes_before'])} were "
        f"there before the bundle was loaded. Loading took {report['load']['seconds']:.2f} s."
    )


def add_memory(page: Page, parts: dict[str, int], planned: int, peak: int | None) -> None:
    """The memory plan as a chart, beside the peak where it is known."""
    drawn = [
        Bar(name.replace("activations and logits", "activations"), size, format_bytes(size), 5)
        for name, size in parts.items()
    ]
    drawn.append(Bar("planned", planned, format_bytes(planned), 0))
    if peak is not None:
        drawn.append(Bar("peak", peak, format_bytes(peak), 4))
    page.chart("memory", "The parts of the memory plan, and the whole.", bars("Memory plan", [("", drawn)]))


def _add_settings(page: Page, report: dict[str, Any]) -> None:
    page.section("What made these numbers")
    conditions, prompts = report["conditions"], report["prompts"]
    facts = {
        "prompts": f"{prompts['name']}, {prompts['measured']} of {prompts['count']} measured, "
        f"sha256 {prompts['sha256'][:16]}",
        "outputs of all modes equal": {True: "yes", False: "no", None: "only one mode"}[report["outputs_equal"]],
        "others' use of the processors": f"{conditions['busy_share_of_others']:.1%}",
        "temperature": _told(conditions["temperature_c"], "{:.0f} C"),
        "clock": _told(conditions["clock_mhz"], "{:.0f} MHz"),
        "throttled": {True: "yes", False: "no", None: "the device does not tell"}[conditions["throttled"]],
        "energy": conditions["energy_source"] or "the device does not tell",
    }
    facts |= {f"machine: {name}": str(value) for name, value in report["machine"].items()}
    facts |= {
        f"setting: {name}": "default" if value is None else str(value) for name, value in report["settings"].items()
    }
    for role, model in report["bundle"]["models"].items():
        facts[f"model: {role}"] = f"{model['source']}, {model['parameters'] / 1e6:.1f} million parameters"
    page.table(("what", "value"), facts.items(), is_text=True)


def _told(value: float | None, form: str) -> str:
    return "the device does not tell" if value is None else form.format(value)


def _optional(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
