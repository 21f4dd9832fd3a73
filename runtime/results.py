"""What a generation yields: an Event a token, and a Result with Stats at the end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pilotfish.bindings import Decision, RequestStats


class TokenLogprob(NamedTuple):
    """A token id and the natural logarithm of its probability under the target's unprocessed logits."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Event:
    """One token."""

    text: str
    """What the token adds to the text: whole characters only, so it may be empty and the next one longer."""
    token_id: int
    logprob: float
    """Natural logarithm of its probability under the target's unprocessed logits; NaN for an echoed prompt's first."""
    origin: str
    """ "plain", "accepted" (drafted), "corrected" (replaces a rejected one), "bonus" (follows an accepted block) or
    "prompt" (echoed)."""
    seconds: float
    """Since the request was opened."""
    top_logprobs: tuple[TokenLogprob, ...] = ()
    """The likeliest ids in its place, likeliest first, as many as the option logprobs asks for."""
    finish_reason: str | None = None
    """Set on the last event of a generation, Result.finish_reason says what it may be."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters and times of one generation."""

    num_prompt_tokens: int
    num_new_tokens: int
    num_rounds: int
    """Passes of the target after prefill, which gives the first token."""
    num_drafted: int
    num_accepted: int
    prefill_seconds: float
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    """Sampling, acceptance and cache work."""
    num_prefilled_target: int
    """Prompt tokens that the target ran; it took the others from an earlier generation."""
    num_prefilled_draft: int
    """Tokens that the draft ran before its first proposal; 0 if it made none."""
    seed: int
    lossy: bool
    """The output does not follow the target: typical acceptance was asked for."""
    num_lookup_rounds: int = 0
    """Rounds that verified tokens found by lookup."""
    num_lookup_drafted: int = 0
    num_lookup_accepted: int = 0
    num_model_rounds: int = 0
    """Rounds that ran the draft model."""
    num_model_drafted: int = 0
    num_model_accepted: int = 0
    num_probe_rounds: int = 0
    """Rounds that ran the draft model to see whether it has become worth it."""
    num_head_rounds: int = 0
    """Rounds that ran the head."""
    num_head_drafted: int = 0
    num_head_accepted: int = 0
    counted_seconds: float = 0.0
    """Of the rounds, by the costs of passes that they are planned by, and by no clock."""
    num_device_rounds: int = 0
    """Rounds whose tokens a GPU chose. The others handed their logits to the host; docs/gpu.md has the options that
    need that."""
    num_failed_drafts: int = 0
    """Rounds in which the draft model's or head's logits were not numbers, so that the target went on without a draft:
    not 0 where the bundle's draft is damaged. On a GPU such a round is a BundleCorruptError instead."""

    @property
    def acceptance_rate(self) -> float:
        """Accepted of the drafted tokens, 0..1; 0 when nothing was drafted."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def acceptance_length(self) -> float:
        """Tokens a round, the target's own token included. The first token is prefill's, no round's."""
        return (self.num_new_tokens - 1) / self.num_rounds if self.num_rounds else 0.0

    @property
    def decode_seconds(self) -> float:
        """Time after prefill."""
        return self.draft_seconds + self.verify_seconds + self.other_seconds

    @property
    def tokens_per_second(self) -> float:
        """Decoded tokens a second: prefill is left out, and the first token, which comes from it."""
        return (self.num_new_tokens - 1) / self.decode_seconds if self.num_rounds else 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """What one round was to draft, what was expected of it, and what came of it."""

    reason: str
    """ "best" (the most tokens a second), "probe" (of the draft model, whether it has become worth it) or "pinned"."""
    num_lookup: int
    """Tokens found by lookup."""
    num_model: int
    """Tokens of the draft model, at most."""
    expected_tokens: float
    expected_seconds: float
    num_head: int
    """Tokens of the head, at most."""
    num_levels: int
    """Of the tree of the draft model or head, at most; a chain has as many as tokens."""
    num_passes: int
    """Of the draft model or head."""
    num_verified: int
    """Drafted tokens that the target saw."""
    num_tokens: int
    """Tokens that it gave."""
    ranks: tuple[int, ...] = ()
    """Of the accepted tokens, among those that the draft model or head thought of in their places, likeliest 0; -1:
    drawn or found by lookup."""


@dataclass(frozen=True, slots=True)
class Result:
    """A finished generation."""

    text: str
    """With echo, the prompt's text comes first, and so do its tokens below."""
    token_ids: tuple[int, ...]
    finish_reason: str
    """ "eos", "stop", "length" (max_new_tokens), "context", "cancelled" or, of structured output, "dead_end": no token
    may follow, or to find out takes more than the limits allow, and the text is incomplete."""
    stats: Stats
    num_dropped_messages: int = 0
    """Of the conversation this answers: the oldest ones, which did not fit the context."""
    rounds: tuple[Round, ...] = ()
    """Every round, where the option explain asked for it."""
    logprobs: tuple[float, ...] = ()
    """One a token, as the events' ones."""
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] = ()
    """One a token, as the events' ones; empty where the option logprobs asks for none."""


def round_from(decision: Decision, *, num_tokens: int) -> Round:
    """A round's decision as users see it, with what came of it."""
    return Round(**(decision._asdict() | {"reason": decision.reason.name.lower()}), num_tokens=num_tokens)


def never_begun(num_prompt_tokens: int) -> Result:
    """Of a generation that was cancelled while it waited for room."""
    stats = Stats(
        num_prompt_tokens=num_prompt_tokens,
        num_new_tokens=0,
        num_rounds=0,
        num_drafted=0,
        num_accepted=0,
        prefill_seconds=0.0,
        draft_seconds=0.0,
        verify_seconds=0.0,
        other_seconds=0.0,
        num_prefilled_target=0,
        num_prefilled_draft=0,
        seed=0,
        lossy=False,
    )
    return Result(text="", token_ids=(), finish_reason="cancelled", stats=stats)


def stats_from(counters: RequestStats, seed: int) -> Stats:
    """The C counters as users see them."""
    return Stats(**asdict(counters), seed=seed)
