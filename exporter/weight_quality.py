"""What the stored weights of bundles cost against their checkpoint's own: perplexity, KL, and what drafts are accepted.

The bundle's graph runs as it does in use, with activations and caches rounded; torch computes the checkpoint's logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.bindings import PilotfishError
from pilotfish.runtime.bench import drafting_models
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.options import GenerateKeywords

from .border import only_own_errors
from .bundle import TOKENIZER, check_bundle, read_manifest
from .calibration import read_windows
from .draft_prompts import PROMPTS
from .errors import OptionError, PairError
from .load import load_checkpoint
from .logits import compare, negative_log_likelihood
from .parity import PagedRun
from .reference_model import torch_logits
from .tokenizer import first_difference
from .trace import build_on_meta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .calibration import CalibrationText
    from .load import Checkpoint
    from .manifest import ModelEntry
    from .progress import Progress

Array = np.ndarray[Any, np.dtype[Any]]
DEFAULT_TOKENS = 4096
_CHAIN = 4  # tokens drafted a round
_NEW_TOKENS = 64  # of an answer at most
_CONTEXT = 512


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How a bundle's draft or head does on the built-in prompts, in chains of four tokens, greedily."""

    source: str  # "draft" or "head"
    rate: float  # accepted / drafted
    length: float  # tokens a round, the target's own included


@dataclass(frozen=True, slots=True)
class WeightScores:
    """One bundle."""

    bundle: str
    mixture: dict[str, float]  # share of the linear layers' weights by format
    bits_per_weight: float  # of packed matrices, scales included
    num_bytes: int  # of the target's weights
    perplexity: float
    kl: float  # nats a token, the checkpoint against the bundle
    top1_agreement: float  # share of tokens after which both find the same one likeliest
    acceptance: tuple[Acceptance, ...]  # empty: neither draft nor head


@dataclass(frozen=True, slots=True)
class WeightsReport:
    """Bundles of one target, on one text."""

    target: str
    text: str
    num_tokens: int
    perplexity: float  # of the checkpoint's own weights
    scores: tuple[WeightScores, ...]


def evaluate_weights(
    target: str, bundles: Sequence[str], text: str, *, num_tokens: int = DEFAULT_TOKENS, progress: Progress
) -> WeightsReport:
    """Compares bundles of a target with its checkpoint, on at most `num_tokens` tokens of a text file.

    Raises:
        ExportError: a bundle of another target, a text that is too short or cannot be read, and whatever loading a
            checkpoint raises.
    """
    with only_own_errors(f"evaluating {target}"):
        checkpoint = load_checkpoint(target)
        tokenizer = checkpoint.tokenizer
        if tokenizer is None:
            raise OptionError(f"{target} has no tokenizer to read a text with; name a checkpoint that has one")
        entries = {bundle: _entry(Path(bundle), checkpoint) for bundle in bundles}
        longest = min(entry.max_positions for entry in entries.values())
        windows = read_windows("text", Path(text), tokenizer, max_positions=longest, most_tokens=num_tokens)
        own, sums = _run(checkpoint, entries, windows, progress)
        progress.stage("accept drafts", len(entries))
        scores = []
        for bundle, entry in entries.items():
            scores.append(_scores(bundle, entry, sums[bundle]))
            progress.advance()
        progress.finish()
        return WeightsReport(checkpoint.id, text, own.num_tokens, own.perplexity, tuple(scores))


@dataclass(slots=True)
class _Sums:
    """Over the tokens of all windows."""

    nll: list[Array] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)  # a window's mean
    top1: list[float] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens that were foretold."""
        return sum(len(part) for part in self.nll)

    @property
    def perplexity(self) -> float:
        """Of the text."""
        return math.exp(float(np.concatenate(self.nll).mean()))


def _entry(bundle: Path, checkpoint: Checkpoint) -> ModelEntry:
    """The bundle's target, if it is of this checkpoint."""
    entry, config = check_bundle(bundle).models["target"], checkpoint.config
    if entry.source.id.startswith(f"{checkpoint.own_id} + "):
        raise PairError(
            f"{bundle} is no bundle of {checkpoint.id}: it has adapters merged, {entry.source.id}; leave it out"
        )
    for name, found, expected in (
        ("architecture", entry.architecture, str(config.model_type)),
        ("layers", entry.num_layers, int(config.num_hidden_layers)),
        ("hidden size", entry.hidden_size, int(config.hidden_size)),
        ("vocabulary", entry.vocab_size, int(config.vocab_size)),
    ):
        if found != expected:
            raise PairError(f"{bundle} is no bundle of {checkpoint.id}: its {name} is {found}, not {expected}")
    own = (bundle / TOKENIZER).read_text(encoding="utf-8")
    if checkpoint.tokenizer is not None and (difference := first_difference(own, checkpoint.tokenizer.json_text)):
        token_id, mine, theirs = difference
        raise PairError(f"{bundle} is no bundle of {checkpoint.id}: token {token_id} is {mine!r}, not {theirs!r}")
    return entry


def _run(
    checkpoint: Checkpoint, entries: dict[str, ModelEntry], text: CalibrationText, progress: Progress
) -> tuple[_Sums, dict[str, _Sums]]:
    """What the checkpoint's own weights and each bundle make of every window."""
    progress.stage("compare weights", len(text.windows) * (1 + len(entries)))
    source = checkpoint.source(build_on_meta(checkpoint.config))
    runs = {
        bundle: PagedRun(Path(bundle) / entry.graph.file, text.windows.shape[1], entry.cache_dtype)
        for bundle, entry in entries.items()
    }
    own, sums = _Sums(), {bundle: _Sums() for bundle in entries}
    for window in text.windows:
        ids = window.tolist()
        expected = torch_logits(checkpoint.config, source.read, source.read, ids)
        own.nll.append(negative_log_likelihood(expected[:-1], window[1:]))
        progress.advance()
        for bundle, run in runs.items():
            found = run.logits(ids, (0, len(ids)))
            of_bundle = sums[bundle]
            of_bundle.nll.append(negative_log_likelihood(found[:-1], window[1:]))
            _, _, kl, top1 = compare(expected, found)
            of_bundle.kl.append(kl)
            of_bundle.top1.append(top1)
            progress.advance()
    return own, sums


def _scores(bundle: str, entry: ModelEntry, sums: _Sums) -> WeightScores:
    packed = sum(tensor.bytes for tensor in entry.tensors if tensor.dtype == "u8")
    return WeightScores(
        bundle=bundle,
        mixture=dict(entry.mixture or {entry.formats.linear: 1.0}),
        bits_per_weight=8 * packed / entry.parameters,
        num_bytes=entry.weights.bytes,
        perplexity=sums.perplexity,
        kl=float(np.mean(sums.kl)),
        top1_agreement=float(np.mean(sums.top1)),
        acceptance=_acceptance(bundle, entry),
    )


def _acceptance(bundle: str, entry: ModelEntry) -> tuple[Acceptance, ...]:
    if read_manifest(Path(bundle)).head is None and "draft" not in read_manifest(Path(bundle)).models:
        return ()
    found = []
    with _opened(bundle, entry.max_positions) as engine:
        prompts = [_encoded(engine, prompt) for prompt in PROMPTS]
        fitting = [ids for ids in prompts if len(ids) + _NEW_TOKENS <= engine.info.max_context]
        for source in drafting_models(engine.info) if fitting else ():
            options = GenerateKeywords(max_new_tokens=_NEW_TOKENS, source=source, num_draft_tokens=_CHAIN)
            stats = [engine.generate(ids, **options).stats for ids in fitting]
            num_rounds, num_drafted = (
                sum(getattr(each, key) for each in stats) for key in ("num_rounds", "num_drafted")
            )
            accepted = sum(each.num_accepted for each in stats)
            decoded = sum(max(each.num_new_tokens - 1, 0) for each in stats)  # the first is prefill's
            found.append(Acceptance(source, accepted / max(num_drafted, 1), decoded / max(num_rounds, 1)))
    return tuple(found)


def _opened(bundle: str, max_positions: int) -> Engine:
    try:
        return Engine(bundle, calibration="off", max_context=min(_CONTEXT, max_positions))
    except PilotfishError as error:
        raise OptionError(f"{bundle} cannot be opened here: {error}") from error


def _encoded(engine: Engine, prompt: str) -> list[int]:
    if engine.manifest.chat_template is None:
        return engine.encode(prompt)
    return engine.encode_chat([{"role": "user", "content": prompt}])
