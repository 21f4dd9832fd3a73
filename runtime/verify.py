"""Proves of a bundle, on this machine, that drafting changes nothing but the time.

Reading order: verify, verify_sources, verify_checks, verify_rollback, verify_oracle, verify_statistics.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engine import Engine
from .speculation import DEFAULT_ACCEPTANCE, REJECTION
from .verify_checks import (
    Amount,
    Check,
    greedy_checks,
    row_checks,
    sampling_checks,
    self_draft_checks,
    shared_pass_checks,
)
from .verify_rollback import rollback_checks
from .verify_sources import MAX_DRAFT_TOKENS, PLAIN, Source, sources_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SCHEMA = "pilotfish-verify/1"
PROMPTS = (
    "Explain in one sentence why the sky is blue.",
    "def fibonacci(n):\n",
    "Once there was a lighthouse keeper who",
    "1, 2, 3, 4, 5, 6,",
    "Translate into French: Where is the station?",
    "Zutaten: 200 g Mehl, \N{VULGAR FRACTION ONE HALF} l Milch, 3 Eier \N{EGG}.",
)


@dataclass(frozen=True, slots=True)
class Report:
    """What verify() found."""

    checks: tuple[Check, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(check.passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The verdict and every check."""
        checks = [dataclasses.asdict(check) for check in self.checks]
        return {"schema": SCHEMA, "passed": self.passed, "checks": checks, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What to verify with."""

    prompts: Sequence[str] = PROMPTS
    amount: Amount = field(default_factory=Amount)
    threads: int | None = None
    device: str = "cpu"
    memory_budget: int | str | None = None
    max_context: int | None = None
    acceptance: str = DEFAULT_ACCEPTANCE


def verify(bundle: str | Path, options: VerifyOptions, on_check: Callable[[Check], None]) -> Report:
    """Run every check with every source of a bundle; ``on_check`` sees each as it is done.

    Raises:
        PilotfishError: the bundle cannot be loaded. That a check fails is no error.
    """
    checks: list[Check] = []

    def run(found: Iterator[Check]) -> None:
        for check in found:
            checks.append(check)
            on_check(check)

    notes: list[str] = []
    with _open(bundle, options) as engine:
        prompts = [engine.encode(prompt) for prompt in options.prompts]
        sources = sources_of(engine)
        run(row_checks(engine, prompts))
        for source in sources:
            run(greedy_checks(engine, prompts, source, options.amount))
        for source in (Source("plain", PLAIN), *sources):
            run(shared_pass_checks(engine, prompts, source, options.amount))
        for source in sources:
            run(rollback_checks(engine, prompts, source, options.amount))
        drawn = options.acceptance == REJECTION
        run(sampling_checks(engine, prompts, sources, options.amount, are_drawn=drawn))
        if not engine.info.has_draft:
            notes.append("the bundle has no draft: only sources that need none were verified")
    with (
        tempfile.TemporaryDirectory(dir=_folder_for_links(bundle), prefix=".pilotfish-verify-") as folder,
        _open(self_draft_bundle(bundle, Path(folder)), options) as engine,
    ):
        for source in sources_of(engine):
            if source.drafts_by_model:
                run(self_draft_checks(engine, prompts, source, options.amount))
    return Report(tuple(checks), tuple(notes))


def self_draft_bundle(bundle: str | Path, folder: Path) -> Path:
    """A bundle in ``folder`` whose draft is the target of another one; its files are the same ones, or copies."""
    original = Path(bundle).resolve()
    for path in original.iterdir():
        if path.name != "manifest.json" and path.is_file():
            _share(path.resolve(), folder / path.name)
    manifest = json.loads((original / "manifest.json").read_bytes())
    manifest["models"]["draft"] = manifest["models"]["target"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _share(file: Path, name: Path) -> None:
    """Gives a file a further name, which is no symbolic link: bundles may not have links to elsewhere."""
    try:
        os.link(file, name)
    except OSError:  # on another disk, or somebody else's
        shutil.copyfile(file, name)


def _folder_for_links(bundle: str | Path) -> Path | None:
    """Where a temporary folder is on the bundle's disk, if it may be made there."""
    above = Path(bundle).resolve().parent
    return above if os.access(above, os.W_OK) else None


def _open(bundle: str | Path, options: VerifyOptions) -> Engine:
    return Engine(
        bundle,
        device=options.device,
        threads=options.threads,
        memory_budget=options.memory_budget,
        max_context=options.max_context,
        acceptance=options.acceptance,
        max_draft_tokens=MAX_DRAFT_TOKENS,
        num_sequences=2,
    )
