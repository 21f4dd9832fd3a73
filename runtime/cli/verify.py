"""``pilotfish verify``: is this bundle lossless on this machine? A verdict table, and exit code 1 if not."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import TextColumn, TimeElapsedColumn

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.files import read_lines
from pilotfish.runtime.machine import describe_machine
from pilotfish.runtime.speculation import DEFAULT_ACCEPTANCE
from pilotfish.runtime.verify import PROMPTS, Report, VerifyOptions
from pilotfish.runtime.verify import verify as verify_bundle
from pilotfish.runtime.verify_checks import Amount

from .arguments import Acceptance, Bundle, Json
from .bars import passing_bar
from .console import EXIT_CHECK_FAILED, note_device, out, show, table, write_json
from .flags import EngineFlags, with_groups

Prompts = Annotated[str | None, typer.Option(metavar="FILE", help="A prompt a line, instead of the built-in ones.")]
NewTokens = Annotated[int, typer.Option(min=16, help="Tokens a greedy generation.")]
Seed = Annotated[int, typer.Option(min=0, help="Of what is sampled.")]
SampledTokens = Annotated[int, typer.Option(min=100, help="Tokens to sample for each source and way to sample.")]


@with_groups
def verify(
    bundle: Bundle,
    *,
    prompts: Prompts = None,
    new_tokens: NewTokens = 48,
    sampled_tokens: SampledTokens = 400,
    seed: Seed = 0,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
    engine_flags: EngineFlags,
    json_file: Json = None,
) -> None:
    """Verify on this machine that drafts change nothing.

    Greedy equality, distributions, self-draft, caches after roll-back, shared passes, for every source of drafts.
    """
    options = VerifyOptions(
        prompts=_read_prompts(prompts) if prompts else PROMPTS,
        amount=Amount(new_tokens, sampled_tokens, seed),
        acceptance=acceptance,
        **engine_flags.keywords(),
    )
    note_device(engine_flags.device)
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with passing_bar(*columns) as progress:
        task = progress.add_task("loading", total=None)
        report = verify_bundle(
            bundle, options, lambda check: progress.update(task, description=f"{check.name}, {check.source}")
        )
    _show(bundle, report)
    write_json(json_file, {"bundle": bundle, "machine": describe_machine(engine_flags.device)} | report.to_json())
    if not report.passed:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _show(bundle: str, report: Report) -> None:
    rows = [(check.name, check.source, "pass" if check.passed else "FAIL", check.detail) for check in report.checks]
    out().print(table(bundle, ("check", "source", "verdict", "found"), rows))
    for line in report.notes:
        show(line)
    num_failed = sum(not check.passed for check in report.checks)
    show(f"lossless: all {len(rows)} checks passed" if report.passed else f"NOT lossless: {num_failed} checks failed")


def _read_prompts(path: str) -> list[str]:
    prompts = [line for line in read_lines("--prompts", path) if line.strip()]
    if not prompts:
        raise InvalidArgumentError(f"--prompts {path} holds no prompt")
    return prompts
