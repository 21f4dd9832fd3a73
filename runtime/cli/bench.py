"""``pilotfish bench``: plain against speculative, as tables, as JSON and as a page."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.bindings import InvalidArgumentError, limits
from pilotfish.runtime import bench as measuring
from pilotfish.runtime.bench_passes import MAX_DRAFT_TOKENS, VERIFY_ROWS, context_to_time, roofline, time_passes
from pilotfish.runtime.bench_prompts import PromptSet, built_in_prompts, fixed_prompt, prompts_from_file
from pilotfish.runtime.bench_report import typical_prompt
from pilotfish.runtime.bench_sensors import Sensors
from pilotfish.runtime.bench_sweeps import measure_together, parse_contexts, sweep_contexts
from pilotfish.runtime.bench_timeline import timeline
from pilotfish.runtime.memory import peak_memory_bytes, resident_memory_bytes
from pilotfish.runtime.options import GenerateOptions
from pilotfish.runtime.report.bench_numbers import Measurement, assemble
from pilotfish.runtime.report.bench_page import bench_page
from pilotfish.runtime.speculation import DEFAULT_ACCEPTANCE

from .arguments import Acceptance, Bundle, DraftTokens, Json
from .bars import passing_bar
from .bench_tables import show_bench
from .console import note_device
from .flags import ChoiceFlags, EngineFlags, TreeFlags, with_groups
from .loading import open_engine
from .pages import PageFlags

if TYPE_CHECKING:
    from pilotfish.runtime.engine import Engine
    from pilotfish.runtime.options import GenerateKeywords

_BUILT_IN_SECONDS = 90.0
_PASS_SHARE = 0.1  # of the time, for passes that are timed by themselves
_MEASURING_SHARE = 0.93  # of the time; what follows takes the rest
PromptTokens = Annotated[
    int | None, typer.Option(help="Continue a fixed text of so many tokens instead of answering prompts.")
]
NewTokens = Annotated[int, typer.Option(min=2, help="Tokens a generation.")]
Prompts = Annotated[
    str | None,
    typer.Option(metavar="FILE", help='JSON lines with "prompt" and "category" instead of the 60 built-in ones.'),
]
Repeats = Annotated[int, typer.Option(min=1, help="Generations a prompt and mode, as long as the time suffices.")]
PassRepeats = Annotated[int, typer.Option(min=1, help="Repeats of each single pass that is timed.")]
Seconds = Annotated[
    float | None,
    typer.Option(
        min=1, help=f"Begin no prompt after so long; {_BUILT_IN_SECONDS:g} with the built-in prompts, else no limit."
    ),
]
Modes = Annotated[str | None, typer.Option(metavar="LIST", help="Such as draft,auto; default: all that there are.")]
NumSequences = Annotated[
    int, typer.Option(min=1, max=limits.MOST_TOGETHER, help="Measure so many generations at once too.")
]
Context = Annotated[
    str | None, typer.Option(metavar="LIST", help="Measure after prompts of these lengths too, as 128,1024.")
]


@dataclass(frozen=True)
class MeasureFlags:
    """What is measured, and for how long."""

    prompts: Prompts = None
    prompt_tokens: PromptTokens = None
    new_tokens: NewTokens = 48
    repeats: Repeats = 3
    pass_repeats: PassRepeats = 20
    seconds: Seconds = None
    modes: Modes = None
    num_sequences: NumSequences = 1
    context: Context = None

    def check(self) -> None:
        """Raise InvalidArgumentError where two exclude each other, or the time is no number."""
        if self.seconds is not None and not math.isfinite(self.seconds):
            raise InvalidArgumentError(f"--seconds is {self.seconds}, must be a number of seconds")
        if self.prompts is not None and self.prompt_tokens is not None:
            raise InvalidArgumentError(
                f"--prompts {self.prompts} and --prompt-tokens {self.prompt_tokens} exclude each other: give one"
            )

    def time_limit(self) -> float | None:
        """In seconds."""
        is_built_in = self.prompts is None and self.prompt_tokens is None
        return _BUILT_IN_SECONDS if self.seconds is None and is_built_in else self.seconds

    def settings(self) -> dict[str, Any]:
        """As reports keep them."""
        kept = {"new_tokens": self.new_tokens, "prompt_tokens": self.prompt_tokens, "repeats": self.repeats}
        return kept | {"seconds": self.time_limit()}

    def load(self, engine: Engine) -> PromptSet:
        """The prompts of these flags."""
        if self.prompts is not None:
            return prompts_from_file(engine, self.prompts, self.new_tokens)
        if self.prompt_tokens is None:
            return built_in_prompts(engine, self.new_tokens)
        if self.prompt_tokens + self.new_tokens > engine.info.max_context:
            raise InvalidArgumentError(
                f"--prompt-tokens {self.prompt_tokens} and --new-tokens {self.new_tokens} do not fit the context of "
                f"{engine.info.max_context} tokens"
            )
        return fixed_prompt(engine, self.prompt_tokens)


@with_groups
def bench(
    bundle: Bundle,
    *,
    measure: MeasureFlags,
    num_draft_tokens: DraftTokens = None,
    tree: TreeFlags,
    choice: ChoiceFlags,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
    engine_flags: EngineFlags,
    pages: PageFlags,
    json_file: Json = None,
) -> None:
    """Measure plain decoding beside every way to draft.

    They take turns in one run; the passes behind them and what the machine could give are measured too.
    """
    start = time.perf_counter()
    # What is wrong with them shows before the bundle loads; a tree is measured beside num_draft_tokens.
    measure.check()
    GenerateOptions(num_draft_tokens=num_draft_tokens)
    GenerateOptions(**tree.keywords())
    GenerateOptions(**choice.keywords())
    pages.check(json_file, [measure.prompts] if measure.prompts is not None else [])
    note_device(engine_flags.device)
    opening: dict[str, Any] = {
        "acceptance": acceptance,
        "max_draft_tokens": max(num_draft_tokens or 0, tree.room(MAX_DRAFT_TOKENS)),
        "num_sequences": measure.num_sequences,
    }
    resident = resident_memory_bytes()
    with open_engine(bundle, **engine_flags.keywords(), **opening) as engine:
        loaded = time.perf_counter() - start
        drafting = measuring.choose_modes(measuring.modes(engine, num_draft_tokens, tree.keywords()), measure.modes)
        modes: dict[str, GenerateKeywords] = {name: choice.keywords() | each for name, each in drafting.items()}
        found = _measure(engine, measure, modes, engine_flags.device, start)
        report = assemble(engine, bundle, engine_flags.device, found)
        report["load"] = {"seconds": loaded, "resident_bytes_before": resident}
    settings = {"draft_tokens": num_draft_tokens, **tree.keywords(), **choice.keywords(), "acceptance": acceptance}
    chosen = {"threads": report["bundle"]["threads"], "device": engine_flags.device}
    report["settings"] = chosen | settings | measure.settings()
    pages.deliver(lambda: bench_page(report), json_file, report, lambda: show_bench(report))


def _measure(
    engine: Engine, flags: MeasureFlags, modes: dict[str, GenerateKeywords], device: str, start: float
) -> Measurement:
    chosen = flags.load(engine)
    contexts = parse_contexts(flags.context, engine.info.max_context, flags.new_tokens)
    limit = flags.time_limit()
    lengths = sorted(len(prompt.ids) for prompt in chosen.prompts)
    middle = context_to_time(engine, lengths[len(lengths) // 2], max(VERIFY_ROWS))
    sensors = Sensors(device)
    before = sensors.read()
    passes = time_passes(
        engine, context=middle, repeats=flags.pass_repeats, seconds=_PASS_SHARE * (limit or float("inf"))
    )
    options = measuring.BenchOptions(
        flags.new_tokens, modes, flags.repeats, None if limit is None else start + _MEASURING_SHARE * limit
    )
    with passing_bar() as progress:
        task = progress.add_task("generating", total=len(modes) * (1 + len(chosen.prompts) * flags.repeats))
        measured = measuring.measure(engine, chosen.prompts, options, sensors, lambda: progress.advance(task))
    after = sensors.read()
    shown = "auto" if "auto" in modes else list(modes)[-1]
    together = {name: each for name, each in modes.items() if name in (measuring.PLAIN, shown)}
    typical = typical_prompt(measured.samples, shown)
    rounds = timeline(engine, chosen.prompts[typical], flags.new_tokens, modes[shown])
    sequences = (
        measure_together(engine, chosen.prompts, flags.num_sequences, flags.new_tokens, together)
        if flags.num_sequences > 1
        else []
    )
    swept = sweep_contexts(engine, contexts, flags.new_tokens, modes[measuring.PLAIN])
    peak = peak_memory_bytes()  # before the machine is measured, which takes memory of its own
    return Measurement(
        prompts=chosen,
        measured=measured,
        passes=passes,
        roofline=roofline(engine, passes, device),
        readings=(before, after),
        energy_source=sensors.energy_source,
        timeline={"mode": shown, "prompt": typical, "rounds": rounds},
        sequences=sequences,
        contexts=swept,
        peak_memory_bytes=peak,
    )
