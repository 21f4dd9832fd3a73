"""python -m pilotfish.exporter.training KIND | evaluate: flags -> one call; results to stdout, notes to stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.exporter.errors import ExportError

from . import TimeLimitReached, evaluate_draft, train
from .command import HELP, add_flags, options_of
from .loop import CURVE_CHAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .progress import StepReport

EXIT_FAILED = 1
EXIT_TIME_LIMIT = 75  # EX_TEMPFAIL: the same command continues
_SECONDS_BETWEEN_LINES = 5.0


class _Lines:
    """Progress as lines on stderr, of the first process only."""

    def __init__(self) -> None:
        self._quiet = os.environ.get("RANK", "0") != "0"
        self._name, self._total, self._done, self._last = "", 1, 0, 0.0

    def phase(self, name: str, total: int) -> None:
        """Begins a phase."""
        self._name, self._total, self._done, self._last = name, total, 0, time.monotonic()
        self._print(name)

    def advance(self, units: int) -> None:
        """Counts units; a line now and then."""
        self._done += units
        if not self._name.startswith("train") and self._is_due():
            self._print(f"{self._name}: {self._done} of {self._total}")

    def report(self, report: StepReport) -> None:
        """A line for every evaluation, and now and then for a step."""
        scores = report.held_out or report.batch
        if scores is None or not (report.held_out or self._is_due() or report.step == 1):
            return
        what = "held out" if report.held_out else f"{report.tokens_per_s:.0f} tokens/s"
        self._print(
            f"{report.stage} {report.step}/{report.steps}: loss {report.loss:.4f}, "
            f"acceptance {scores.sampled:.3f} sampled, greedy by position "
            f"{' '.join(f'{value:.3f}' for value in scores.greedy_by_depth[:CURVE_CHAIN] if value)}, "
            f"tokens a round {scores.greedy_lengths[CURVE_CHAIN - 1]:.2f} (K = {CURVE_CHAIN}), {what}"
        )

    def _is_due(self) -> bool:
        due = time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES
        if due:
            self._last = time.monotonic()
        return due

    def _print(self, line: str) -> None:
        if not self._quiet:
            print(line, file=sys.stderr, flush=True)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status is 0, 1 (an error) or 75 (time limit: run again)."""
    parser = argparse.ArgumentParser(prog="python -m pilotfish.exporter.training")
    commands = parser.add_subparsers(dest="command", required=True)
    for kind, what in HELP.items():
        add_flags(commands.add_parser(kind, help=what), kind)
    evaluate = commands.add_parser("evaluate", help="greedy chain acceptance of a draft or head on prompts")
    evaluate.add_argument("--target", required=True, help="hub id, folder or .gguf file")
    evaluate.add_argument("--draft", type=Path, required=True, help="folder of the draft or head")
    evaluate.add_argument("--prompts", type=Path, required=True, help='JSON lines with "prompt" and "category"')
    evaluate.add_argument("--tokens", type=int, default=128, help="greedy tokens for each prompt (128)")
    parsed = parser.parse_args(arguments)
    command = parsed.command
    del parsed.command
    try:
        result = _evaluate(parsed) if command == "evaluate" else _train(parsed, command)
    except TimeLimitReached as limit:
        print(limit, file=sys.stderr)  # noqa: T201
        return EXIT_TIME_LIMIT
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(result))  # noqa: T201
    return 0


def _train(parsed: argparse.Namespace, kind: str) -> dict[str, object]:
    result = train(options_of(parsed, kind), _Lines())
    stages = {stage.name: asdict(stage.held_out) for stage in result.record.stages}
    return {"out": str(result.folder), "held_out": stages, "prompts": [asdict(row) for row in result.record.prompts]}


def _evaluate(parsed: argparse.Namespace) -> dict[str, object]:
    scores = evaluate_draft(parsed.target, parsed.draft, parsed.prompts, new_tokens=parsed.tokens)
    return {"prompts": [asdict(row) for row in scores]}


if __name__ == "__main__":
    sys.exit(main())
