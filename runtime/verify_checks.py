"""The single checks of pilotfish verify. Each takes an engine and yields Checks; none knows which sources there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import Model

from .options import GenerateKeywords, GenerateOptions
from .verify_oracle import SAMPLINGS, Sampling, distribution
from .verify_sources import PLAIN, Source
from .verify_statistics import randomised_rank, uniform_p_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from .engine import Engine
    from .results import Result

    Prompts = Sequence[Sequence[int]]

# Of a whole verification: the chance that a right engine fails one of its statistical checks.
FALSE_ALARM = 1e-3
COLLAPSED = 0.02
ROWS = (1, 2, 3, 8, 17, 64)  # of passes whose rows are compared
# Fewer drafted tokens say nothing about acceptance.
LEAST_DRAFTED = 50
_NO_REUSE = GenerateKeywords(reuse_prefix=False)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the verdict."""

    name: str
    source: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Amount:
    """How much to generate."""

    new_tokens: int = 48
    """A prompt, greedily, or sampled by every source."""
    sampled_tokens: int = 400
    """Of plain decoding and a sampling, at least."""
    seed: int = 0


def greedy_checks(engine: Engine, prompts: Prompts, source: Source, amount: Amount) -> Iterator[Check]:
    """Greedy output is plain decoding's, token for token; and the draft is accepted neither always nor never."""
    drafted = accepted = 0
    different = ""
    num_equal = 0
    for prompt in prompts:
        plain = _greedy(engine, prompt, PLAIN, amount)
        result = _greedy(engine, prompt, source.options, amount)
        drafted += result.stats.num_drafted
        accepted += result.stats.num_accepted
        if result.token_ids == plain.token_ids and result.finish_reason == plain.finish_reason:
            num_equal += 1
        elif not different:
            different = "; " + _first_difference(engine, prompt, plain.token_ids, result.token_ids)
    passed = num_equal == len(prompts)
    yield Check("greedy equality", source.name, passed, f"{num_equal} of {len(prompts)} prompts{different}")
    if source.drafts_by_model and drafted >= LEAST_DRAFTED:
        yield _acceptance_check(source, accepted, drafted)


def shared_pass_checks(engine: Engine, prompts: Prompts, source: Source, amount: Amount) -> Iterator[Check]:
    """In passes that it shares with others a generation has the tokens and logprobs that it has alone, to the bit."""
    options = source.options | _NO_REUSE | GenerateKeywords(max_new_tokens=amount.new_tokens)
    alone = [engine.generate(prompt, **options) for prompt in prompts]
    together = engine.generate_batch(prompts, **options)
    num_equal = sum(
        (one.token_ids, one.logprobs, one.finish_reason) == (other.token_ids, other.logprobs, other.finish_reason)
        for one, other in zip(alone, together, strict=True)
    )
    yield Check("shared passes", source.name, num_equal == len(prompts), f"{num_equal} of {len(prompts)} prompts")


def row_checks(engine: Engine, prompts: Prompts) -> Iterator[Check]:
    """A row of a pass has the same bits alone and among others, which all else rests on.

    The first pass has as many rows as a pass of a prompt may have. A longer sequence ends in a pass of the rows that
    are left, which starts behind it.
    """
    chunk = min(engine.info.prefill_chunk, engine.info.max_context)
    num_rows = min(chunk + ROWS[-1], engine.info.max_context)
    ids = [token_id for prompt in prompts for token_id in prompt]
    ids = (ids * (num_rows // len(ids) + 1))[:num_rows]
    together = engine.logits(ids)
    different = [
        f"{size} rows from row {start}"
        for start in (0, chunk)
        for size in ROWS
        if start + size < (num_rows if start else chunk)
        and not np.array_equal(engine.logits(ids[: start + size]), together[: start + size], equal_nan=True)
    ]
    detail = f"passes of {', '.join(different)} differ" if different else f"{num_rows} rows"
    yield Check("rows alone", "plain", not different, detail)


def self_draft_checks(engine: Engine, prompts: Prompts, source: Source, amount: Amount) -> Iterator[Check]:
    """A draft that is the target itself is never corrected: all of a chain, a whole path of a tree is accepted.

    A source that drafts as many tokens as pay may draft none of so slow a draft.
    """
    num_equal = num_drafted = num_accepted = num_corrected = 0
    for prompt in prompts:
        plain = _greedy(engine, prompt, PLAIN, amount)
        options = source.options | _NO_REUSE | GenerateKeywords(max_new_tokens=amount.new_tokens)
        with engine.stream(prompt, **options) as stream:
            origins = [event.origin for event in stream]
            num_equal += stream.result().token_ids == plain.token_ids
            num_drafted += stream.stats.num_drafted
        num_accepted += origins.count("accepted")
        num_corrected += origins.count("corrected")
    passed = (
        num_equal == len(prompts) and num_corrected == 0 and (num_accepted > 0 or not (num_drafted or source.is_fixed))
    )
    detail = f"{num_equal} of {len(prompts)} prompts, {num_accepted} tokens accepted, {num_corrected} corrected"
    yield Check("self-draft", source.name, passed, detail)


def sampled_equality_check(
    engine: Engine, source: Source, sampling: Sampling, plain: Sequence[tuple[Sequence[int], Result]], amount: Amount
) -> Check:
    """Sampled output is that of plain decoding for the same seed, token for token; ``plain`` has it of each prompt."""
    different = ""
    num_equal = 0
    for index, (prompt, expected) in enumerate(plain):
        result = _sampled(engine, prompt, source.options | sampling.options, amount, index)
        if result.token_ids == expected.token_ids and result.finish_reason == expected.finish_reason:
            num_equal += 1
        elif not different:
            different = "; " + _first_difference(engine, prompt, expected.token_ids, result.token_ids)
    detail = f"{num_equal} of {len(plain)} prompts{different}"
    return Check(f"sampled equality: {sampling.name}", source.name, num_equal == len(plain), detail)


def distribution_check(
    engine: Engine, prompts: Prompts, source: Source, sampling: Sampling, amount: Amount, *, num_checks: int
) -> Check:
    """Sampled tokens follow the processed distribution of the target's own logits, position by position.

    The ranks are summed likeliest first, and once more with those first that the draft likes better than the target.
    """
    ranks: dict[str, list[float]] = {"p": [], "q/p": []}
    generator = np.random.default_rng(amount.seed)
    endless = sampling.options | source.options | GenerateKeywords(ignore_eos=True)
    options = GenerateOptions(**endless)
    num_tokens = num_impossible = 0
    seed = amount.seed
    while num_tokens < amount.sampled_tokens:
        prompt = list(prompts[seed % len(prompts)])
        run = GenerateKeywords(max_new_tokens=amount.new_tokens, seed=seed)
        ids = list(engine.generate(prompt, **(endless | run)).token_ids)
        seed += 1
        num_tokens += len(ids)
        first = len(prompt) - 1
        target = engine.logits(prompt + ids)[first:-1]
        draft = engine.logits(prompt + ids, Model.DRAFT)[first:-1] if engine.info.has_draft else target
        for row, token_id in enumerate(ids):
            before = prompt + ids[:row]
            probabilities = distribution(target[row], options, before, len(prompt), engine.manifest.tokenizer.eos_ids)
            for name, preference in _preferences(probabilities, draft[row]).items():
                rank = randomised_rank(probabilities, preference, token_id, generator.random())
                if rank is None:
                    num_impossible += 1
                    break
                ranks[name].append(rank)
    values = {name: uniform_p_value(found) for name, found in ranks.items()}
    passed = num_impossible == 0 and min(values.values()) > FALSE_ALARM / (len(values) * num_checks)
    detail = f"{num_tokens} tokens, " + ", ".join(f"p-value by {name} {value:.2g}" for name, value in values.items())
    if num_impossible:
        detail += f", {num_impossible} tokens that the options rule out"
    return Check(f"distribution: {sampling.name}", source.name, passed, detail)


def sampling_checks(
    engine: Engine, prompts: Prompts, sources: Sequence[Source], amount: Amount, *, are_drawn: bool = False
) -> Iterator[Check]:
    """With every sampling plain decoding follows the exact distribution, and every source repeats its tokens.

    Where drafts are accepted by rejection, `are_drawn`, chains follow the distribution instead.
    """
    drawn = [source for source in sources if are_drawn and source.is_drawn]
    sources = [source for source in sources if source not in drawn]
    for sampling in SAMPLINGS:
        for source in (Source("plain", PLAIN), *drawn):
            num_checks = len(SAMPLINGS) * (1 + len(drawn))
            yield distribution_check(engine, prompts, source, sampling, amount, num_checks=num_checks)
        plain = [
            (prompt, _sampled(engine, prompt, PLAIN | sampling.options, amount, index))
            for index, prompt in enumerate(prompts)
        ]
        for source in sources:
            yield sampled_equality_check(engine, source, sampling, plain, amount)


def _acceptance_check(source: Source, accepted: int, drafted: int) -> Check:
    rate = accepted / drafted
    detail = f"{accepted} of {drafted} ({rate:.1%})"
    if accepted == drafted:
        detail += ": exactly all, as if nothing were verified"
    elif rate < COLLAPSED:
        detail += f": below {COLLAPSED:.0%}, as if the draft's cache were broken or it were another model's draft"
    return Check("acceptance", source.name, rate >= COLLAPSED and accepted < drafted, detail)


def _greedy(engine: Engine, prompt: Sequence[int], options: GenerateKeywords, amount: Amount) -> Result:
    return engine.generate(prompt, **(options | _NO_REUSE | GenerateKeywords(max_new_tokens=amount.new_tokens)))


def _sampled(engine: Engine, prompt: Sequence[int], options: GenerateKeywords, amount: Amount, index: int) -> Result:
    run = GenerateKeywords(max_new_tokens=amount.new_tokens, seed=amount.seed + index)
    return engine.generate(prompt, **(options | _NO_REUSE | run))


def _first_difference(engine: Engine, prompt: Sequence[int], plain: Sequence[int], other: Sequence[int]) -> str:
    """Where, and by how much the target prefers the one token to the other: a small gap means a near-tie."""
    pairs = zip(plain, other, strict=False)
    index = next((at for at, (one, two) in enumerate(pairs) if one != two), min(len(plain), len(other)))
    if index == min(len(plain), len(other)):
        return f"the outputs have {len(plain)} and {len(other)} tokens"
    row = engine.logits([*prompt, *plain[:index]])[-1]
    gap = float(row[plain[index]] - row[other[index]])
    return f"first difference at token {index}: {plain[index]} became {other[index]}, their logits differ by {gap:.3g}"


def _preferences(
    probabilities: NDArray[np.float64], draft_logits: NDArray[np.float32]
) -> dict[str, NDArray[np.float64]]:
    with np.errstate(divide="ignore", invalid="ignore"):
        by_draft = draft_logits.astype(np.float64) - np.log(probabilities)
    by_draft[probabilities == 0] = -np.inf
    return {"p": probabilities, "q/p": by_draft}
