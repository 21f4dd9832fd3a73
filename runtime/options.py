"""What a user may ask of one generation: spelled once, checked once, with the value and the limit in every message."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypedDict

from pilotfish.bindings import DraftSource, InvalidArgumentError, RequestOptions, limits

from .draft_tree import tree_size
from .option_checks import (
    check_encodable,
    check_flag,
    check_int,
    check_sequence,
    require,
    require_number,
    shown,
)
from .source_checks import check_drafting, check_source

if TYPE_CHECKING:
    from pilotfish.bindings import Mask

INT32_MAX = 2**31 - 1
UINT64_MAX = 2**64 - 1
SOURCES = {
    "auto": DraftSource.AUTO,
    "plain": DraftSource.PLAIN,
    "draft": DraftSource.MODEL,
    "lookup": DraftSource.LOOKUP,
    "lookup+draft": DraftSource.LOOKUP_MODEL,
    "head": DraftSource.HEAD,
    "lookup+head": DraftSource.LOOKUP_HEAD,
}
_DEFAULTS = limits.GENERATE
FLAG = "flag"


def _flag(name: str, text: str) -> Any:
    """An option with the library's default that the commands have as a flag, which this text explains."""
    return field(default=getattr(_DEFAULTS, name), metadata={FLAG: text})


class GenerateKeywords(TypedDict, total=False):
    """Keywords of Engine.generate, stream, chat and stream_chat; GenerateOptions says what they mean."""

    max_new_tokens: int
    source: str
    num_draft_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    no_repeat_ngram_size: int
    logit_bias: Mapping[int, float]
    seed: int | None
    min_new_tokens: int
    stop: str | Sequence[str]
    stop_ids: Sequence[int]
    ignore_eos: bool
    logprobs: int
    echo: bool
    json_schema: Mapping[str, Any] | str | None
    regex: str | None
    grammar: str | None
    reuse_prefix: bool
    tree: str | None
    tree_nodes: int | None
    tree_depth: int | None
    explain: bool
    typical_acceptance: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """Options of one generation. Speculation changes none of their meanings, only the speed.

    Scores are processed in the order of transformers' generate: logit_bias, repetition_penalty, no_repeat_ngram_size,
    min_new_tokens, and then what is not in transformers: frequency_penalty and presence_penalty. They act on greedy
    decoding as well; for sampling these follow: temperature, top_k, top_p, min_p, typical_p.

    Raises:
        InvalidArgumentError: a value outside its range.
        TypeError: an option that does not exist.
    """

    max_new_tokens: int = _DEFAULTS.max_new_tokens
    """Tokens to generate at most, at least 1."""
    source: str = "auto"
    """Where drafted tokens come from: "draft" is the bundle's draft model, "head" its head on the target's hidden
    states, "lookup" what followed earlier occurrences of the last tokens, "lookup+draft" and "lookup+head" both,
    "plain" none. "auto" takes, round by round, what promises most."""
    num_draft_tokens: int | None = None
    """Tokens drafted a round, whatever they cost; 0 decodes plainly. None: each round as many as pay off, up to the
    engine's max_draft_tokens. A number with the source "auto" is the draft model's, or the head's where there is no
    draft model. A head drafts no more levels than it has predictions for."""
    temperature: float = _flag("temperature", "0: greedy.")
    """Below 1e-37 it is greedy; otherwise logits are divided by it."""
    top_k: int = _flag("top_k", "Keep the k likeliest tokens; 0: off.")
    """Keep the k likeliest tokens; 0 is off."""
    top_p: float = _flag("top_p", "Keep the likeliest tokens that reach this probability; 1: off.")
    """Keep the likeliest tokens that together reach this probability, in (0, 1]; 1 is off."""
    min_p: float = _flag("min_p", "Keep tokens at least this fraction as likely as the likeliest; 0: off.")
    """Keep tokens at least this fraction as likely as the likeliest, in [0, 1); 0 is off."""
    typical_p: float = _flag(
        "typical_p", "Keep the tokens nearest to the typical surprise that reach this probability; 1: off."
    )
    """Keep the tokens whose surprise is nearest to the entropy until they reach this probability, in (0, 1]; 1 is
    off."""
    repetition_penalty: float = _flag(
        "repetition_penalty", "Divide, or multiply below zero, the scores of tokens that occurred; 1: off."
    )
    """Scores above zero of tokens that occurred, in prompt or output, are divided by it, those below multiplied, in
    (0, 100]; 1 is off."""
    presence_penalty: float = _flag("presence_penalty", "Lower the scores of generated tokens by this; 0: off.")
    """Subtracted from the scores of tokens that were generated, in [-100, 100]; 0 is off. The prompt does not count."""
    frequency_penalty: float = _flag("frequency_penalty", "The same for each time that one was generated; 0: off.")
    """Subtracted once for each time that a token was generated, in [-100, 100]; 0 is off."""
    penalty_window: int = _flag("penalty_window", "How many of the last tokens penalties look at; 0: all.")
    """How many of the last tokens, prompt included, penalties look at; 0 is all."""
    no_repeat_ngram_size: int = _flag("no_repeat_ngram_size", "No n-gram of this size occurs twice; 0: off.")
    """No n-gram of this size occurs twice in prompt and output; 0 is off."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the scores of token ids; -inf bans one."""
    seed: int | None = None
    """Same seed, options, bundle and build: same tokens, whatever drafts. The token at a position is the one with the
    largest log-probability plus Gumbel noise of seed, position and token id. None draws a fresh seed; greedy decoding
    ignores it."""
    min_new_tokens: int = _DEFAULTS.min_new_tokens
    """Nothing ends the text before so many tokens: end-of-text ids and stop_ids are banned, stop strings ignored."""
    stop: str | Sequence[str] = ()
    """Strings that end the text; they are cut off, also when they span tokens. One that spells a special token, as
    "<|im_start|>" does, ends it at that token too, as its id among stop_ids would."""
    stop_ids: Sequence[int] = ()
    """Token ids that end the text, beside the bundle's own end-of-text ids."""
    ignore_eos: bool = bool(_DEFAULTS.ignore_eos)
    """Go on after the bundle's end-of-text ids."""
    logprobs: int = _DEFAULTS.num_top_logprobs
    """So many likeliest ids are reported with each token, with their log-probabilities, 0..256."""
    echo: bool = bool(_DEFAULTS.echo)
    """The prompt's tokens come first, as events with their log-probabilities; the first one has none (NaN). The prompt
    then runs a few tokens at a time, which is slow."""
    json_schema: Mapping[str, Any] | str | None = None
    """The text is JSON that this schema, a mapping or its text, describes, unless max_new_tokens, a stop or the context
    cuts it short, or nothing can complete it (finish_reason "dead_end"). What nothing fulfils is an error, as far as it
    can be known beforehand. Needs the extra "structured", as do regex and grammar."""
    regex: str | None = None
    """The text matches this regular expression, in Rust's syntax, from beginning to end."""
    grammar: str | None = None
    """The text is of this context-free grammar, in llguidance's variant of Lark. Text is never spelled with special
    tokens; a rule may name one, as in <|im_start|>."""
    reuse_prefix: bool = bool(_DEFAULTS.reuse_prefix)
    """Start from the caches of an earlier generation that began alike, and leave them for later ones."""
    tree: str | None = None
    """"dynamic": a token tree of the draft model, or of the head where the source is "head" or there is no draft model,
    instead of a chain of num_draft_tokens. It has the tree_nodes likeliest tokens, with the sources "lookup+draft" and
    "lookup+head" looked-up ones too."""
    tree_nodes: int | None = None
    """Tokens of a dynamic tree; None: the engine's max_draft_tokens."""
    tree_depth: int | None = None
    """Levels of a dynamic tree; None: 6."""
    explain: bool = False
    """Keep what each round was to draft, and what came of it, in Result.rounds."""
    typical_acceptance: tuple[float, float] | None = None
    """LOSSY: (epsilon, delta) of Medusa's typical acceptance, which keeps a drafted token of probability above
    min(epsilon, delta * exp(-entropy)). The output no longer follows the target. None: exact."""

    def __post_init__(self) -> None:
        """Check every range."""
        check_int("max_new_tokens", self.max_new_tokens, 1, limits.MOST_CONTEXT)
        check_int("min_new_tokens", self.min_new_tokens, 0, INT32_MAX)
        if self.min_new_tokens > self.max_new_tokens:
            raise InvalidArgumentError(
                f"min_new_tokens is {self.min_new_tokens}, must be at most max_new_tokens, {self.max_new_tokens}"
            )
        require("source", self.source, isinstance(self.source, str) and self.source in SOURCES, ", ".join(SOURCES))
        if self.num_draft_tokens is not None:
            check_int("num_draft_tokens", self.num_draft_tokens, 0, limits.MOST_DRAFT_TOKENS)
        if self.seed is not None:
            check_int("seed", self.seed, 0, UINT64_MAX)
        check_int("logprobs", self.logprobs, 0, limits.MOST_TOP_LOGPROBS)
        for name in ("ignore_eos", "echo", "reuse_prefix", "explain"):
            check_flag(name, getattr(self, name))
        self._check_filters()
        self._check_processors()
        self._check_stops()
        self._check_structure()
        check_drafting(self)

    def _check_filters(self) -> None:
        most = limits.MOST_TEMPERATURE
        require_number("temperature", self.temperature, f"0 (greedy) to {most}", lambda x: 0 <= x <= most)
        check_int("top_k", self.top_k, 0, INT32_MAX)
        require_number("top_p", self.top_p, "in (0, 1]", lambda x: 0 < x <= 1)
        require_number("min_p", self.min_p, "in [0, 1)", lambda x: 0 <= x < 1)
        require_number("typical_p", self.typical_p, "in (0, 1]", lambda x: 0 < x <= 1)

    def _check_processors(self) -> None:
        most = limits.MOST_PENALTY
        require_number("repetition_penalty", self.repetition_penalty, f"in (0, {most}]", lambda x: 0 < x <= most)
        for name in ("presence_penalty", "frequency_penalty"):
            require_number(name, getattr(self, name), f"in [-{most}, {most}]", lambda x: abs(x) <= most)
        check_int("penalty_window", self.penalty_window, 0, INT32_MAX)
        check_int("no_repeat_ngram_size", self.no_repeat_ngram_size, 0, INT32_MAX)
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidArgumentError(f"logit_bias is {shown(self.logit_bias)}, must map token ids to numbers")
        for token_id, bias in self.logit_bias.items():
            check_int("an id of logit_bias", token_id, 0, INT32_MAX)
            require_number(f"logit_bias of id {token_id}", bias, "a number or -inf", lambda x: x < math.inf)

    def _check_stops(self) -> None:
        if not isinstance(self.stop, (str, Sequence)):
            raise InvalidArgumentError(f"stop is {shown(self.stop)}, must be a string or a sequence of strings")
        for text in self.stop_strings:
            require("stop", text, isinstance(text, str) and text != "", "non-empty strings")
            check_encodable(f"stop {text!r:.40}", text)
        check_sequence("stop_ids", self.stop_ids, "token ids")
        for token_id in self.stop_ids:
            check_int("stop_ids", token_id, 0, INT32_MAX)

    def _check_structure(self) -> None:
        given = [name for name in ("json_schema", "regex", "grammar") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidArgumentError(f"{' and '.join(given)} are given, must be one of them")
        if given and self.ignore_eos:
            raise InvalidArgumentError(f"ignore_eos is True, but {given[0]} says where the text ends")
        for name in ("regex", "grammar"):
            value = getattr(self, name)
            require(name, value, value is None or isinstance(value, str), "a string")
        is_schema = self.json_schema is None or isinstance(self.json_schema, (str, Mapping))
        require("json_schema", self.json_schema, is_schema, "a mapping or a string")

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings, also when only one was given."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def to_request(
        self,
        *,
        has_draft: bool,
        max_draft_tokens: int,
        has_head: bool = False,
        mask: Mask | None = None,
    ) -> RequestOptions:
        """Fill in what depends on the bundle, and draw the seed if none was given.

        Args:
            has_draft: it has a draft model.
            max_draft_tokens: what the engine has room for.
            has_head: it has a head.
            mask: of structured output.
        """
        nodes, depth = tree_size(self.tree, self.tree_nodes, self.tree_depth, max_draft_tokens=max_draft_tokens)
        num_draft_tokens = limits.AS_MANY_AS_PAY if self.num_draft_tokens is None else self.num_draft_tokens
        check_source(self, has_draft=has_draft, has_head=has_head)
        if self.num_draft_tokens is not None:
            check_int("num_draft_tokens", num_draft_tokens, 0, max_draft_tokens)
        epsilon, delta = self.typical_acceptance or (0.0, 0.0)
        return RequestOptions(
            numbers={name: getattr(self, name) for name in _NUMBERS}
            | {
                "num_draft_tokens": num_draft_tokens,
                "seed": secrets.randbits(UINT64_MAX.bit_length()) if self.seed is None else int(self.seed),
                "draft_source": SOURCES[self.source],
                "num_top_logprobs": self.logprobs,
                "tree_nodes": nodes,
                "tree_depth": depth,
                "typical_epsilon": epsilon,
                "typical_delta": delta,
            },
            stop_ids=tuple(self.stop_ids),
            logit_bias=tuple(self.logit_bias.items()),
            mask=mask,
        )


_NUMBERS = tuple(each.name for each in fields(GenerateOptions) if each.name in vars(limits.GENERATE))
