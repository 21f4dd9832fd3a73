"""Sections of a benchmark's page about answers: acceptance, rounds, tokens by origin, sweeps, memory and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotfish.runtime.memory import format_bytes
from pilotfish.runtime.token_origins import ORIGINS

from .svg import Bar, Line, bars, legend, lines, segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .page import Page

PARTS = (
    ("drafting", "draft", 2),
    ("verifying", "verify", 0),
    ("accepting", "accept", 1),
    ("everything else", "rest", 7),
)
"""Of a round: name, key and colour."""
_ORIGIN_COLOURS: dict[str, int | None] = {"plain": None, "lookup": 2, "draft": 0, "head": 6, "corrected": 4}
_ROUNDS_A_ROW = 8


def add_acceptance(page: Page, report: dict[str, Any]) -> None:
    """Acceptance by position and source."""
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
            optional_text(run["acceptance_rate"], "{:.1%}"),
            f"{run['acceptance_length']:.2f}",
            ", ".join(
                f"{source} {counts['accepted']} of {counts['drafted']}"
                for source, counts in run["acceptance_by_source"].items()
            ),
        )
        for run in runs
    ]
    page.table(("mode", "accepted", "tokens a round", "accepted of drafted, by source"), rows)


def add_timeline(page: Page, report: dict[str, Any]) -> None:
    """Some rounds of one answer, and its tokens by origin."""
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
        legend([(name, colour) for name, _, colour in PARTS]),
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
        for name, key, colour in PARTS
    ]


def add_sweeps(page: Page, report: dict[str, Any]) -> None:
    """Speed by context, and of several generations at once, where they were measured."""
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


def add_memory_section(page: Page, report: dict[str, Any]) -> None:
    """The memory plan beside the peak, and the time that loading took."""
    memory = report["memory"]
    page.section("Memory")
    add_memory(page, memory["parts"], memory["planned_bytes"], memory["peak_bytes"])
    page.paragraph(
        f"Planned: {format_bytes(memory['planned_bytes'])}. The process's largest resident set: "
        f"{format_bytes(memory['peak_bytes'])}, of which {format_bytes(report['load']['resident_bytes_before'])} were "
        f"there before the bundle was loaded. Loading took {report['load']['seconds']:.2f} s."
    )


def add_memory(page: Page, parts: dict[str, int], planned: int, peak: int | None, *, name: str = "memory") -> None:
    """The memory plan as a chart, beside the peak where it is known."""
    drawn = [
        Bar(name.replace("activations and logits", "activations"), size, format_bytes(size), 5)
        for name, size in parts.items()
    ]
    drawn.append(Bar("planned", planned, format_bytes(planned), 0))
    if peak is not None:
        drawn.append(Bar("peak", peak, format_bytes(peak), 4))
    page.chart(name, "The parts of the memory plan, and the whole.", bars("Memory plan", [("", drawn)]))


def add_settings(page: Page, report: dict[str, Any]) -> None:
    """Machine, conditions and options."""
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


def optional_text(value: float | None, form: str) -> str:
    """A number, or nothing where there is none."""
    return "" if value is None else form.format(value)
