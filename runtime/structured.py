"""Text that parses: JSON schemas, regular expressions and grammars as masks over the vocabulary, by llguidance.

A matcher follows the tokens; for a drafted token it goes ahead along the path to it and back again, so that each row
of a block has the mask that plain decoding would have there.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.bindings import InternalError, InvalidArgumentError, Mask, UnsupportedError

from .deep_thread import call_deeply
from .rust_panics import panics_as
from .structured_checks import check_grammar, check_regex, reason_of, schema_text
from .token_bytes import TokenBytes, UnspellableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from llguidance import LLMatcher, LLTokenizer
    from numpy.typing import NDArray

    from .options import GenerateOptions
    from .tokenizer import Tokenizer

# Between two tokens of JSON. llguidance's own pattern has no end, and a model at a loss may write blanks for ever.
_JSON_BLANKS = {"whitespace_pattern": r"[ \n\t]{0,16}"}
# With these nearly every grammar compiles, or is refused, within a second, and so is a mask.
_LIMITS = {
    "initial_lexer_fuel": 300_000,
    "step_lexer_fuel": 200_000,
    "max_lexer_states": 50_000,
    "max_items_in_row": 8_000,
    "verbose_errors": False,
}
_MOST_SECONDS = 10
_MOST_FORCED = 64  # tokens that are followed to see whether they lead anywhere
_NOTHING_FOLLOWS = "NoExtensionBias"  # llguidance's reason where no token may follow
_WORD_BITS = 32


class Constraints:
    """Makes the constraints of an engine's generations. Reads its tokenizer, in about a second, for the first one."""

    def __init__(self, tokenizer: Tokenizer, num_ids: int, eos_ids: Sequence[int]) -> None:
        """Remember what to read."""
        self._source = (tokenizer, num_ids, eos_ids)
        self._lock = threading.RLock()  # a signal handler may ask for constrained text, too
        self._vocabulary: Vocabulary | None = None

    def of(self, options: GenerateOptions) -> Constraint | None:
        """What the options ask the text to be; None if it may be anything.

        Raises:
            InvalidArgumentError: the schema, expression or grammar is none, or nothing fulfils it.
            UnsupportedError: llguidance is not installed, or cannot use the tokenizer.
        """
        if options.json_schema is None and options.regex is None and options.grammar is None:
            return None
        with self._lock:
            if self._vocabulary is None:
                tokenizer, num_ids, eos_ids = self._source
                self._vocabulary = Vocabulary(tokenizer.to_json(), num_ids, eos_ids)
        if options.json_schema is not None:
            return self._vocabulary.json_schema(options.json_schema)
        if options.regex is not None:
            return self._vocabulary.regex(options.regex)
        return self._vocabulary.grammar(options.grammar or "")


class Vocabulary:
    """A tokenizer as llguidance sees it."""

    def __init__(self, tokenizer_json: str, num_ids: int, eos_ids: Sequence[int]) -> None:
        """Read a tokenizer.json.

        Raises:
            UnsupportedError: llguidance is not installed, the tokenizer is of a kind it does not know, or the bundle
                has no end-of-text id to end with.
        """
        self._library = _llguidance()
        self._num_ids = num_ids
        if not eos_ids:
            raise UnsupportedError("the bundle has no end-of-text id: constrained text could not end")
        problem = "llguidance cannot use this bundle's tokenizer"
        try:
            with panics_as(UnsupportedError, problem):
                self.tokenizer: LLTokenizer = self._library.LLTokenizer(
                    TokenBytes(tokenizer_json, num_ids, eos_ids),
                    eos_token=list(eos_ids),
                    slices=self._library.LLTokenizer.json_slices(),
                )
        except ValueError as error:
            raise UnsupportedError(f"{problem}: {reason_of(error)}") from error
        self._limits = self._library.LLParserLimits(**_LIMITS)

    def json_schema(self, schema: Mapping[str, Any] | str) -> Constraint:
        """A constraint to what a JSON schema, a mapping or its text, describes.

        Raises:
            InvalidArgumentError: it is no schema, or nothing fulfils it.
        """
        text = schema_text(schema)
        try:
            with panics_as(InvalidArgumentError, "json_schema cannot be used: llguidance failed on it"):
                grammar = self._library.LLMatcher.grammar_from_json_schema(text, overrides=_JSON_BLANKS)
        except ValueError as error:
            raise InvalidArgumentError(f"json_schema is no JSON schema: {reason_of(error)}") from error
        return self._constraint("json_schema", grammar)

    def regex(self, pattern: str) -> Constraint:
        """A constraint to text that matches a regular expression from beginning to end, in Rust's syntax."""
        check_regex(pattern)
        return self._constraint("regex", self._library.LLMatcher.grammar_from_regex(pattern))

    def grammar(self, lark: str) -> Constraint:
        """A constraint to a context-free grammar in llguidance's variant of Lark, beginning with the rule start."""
        check_grammar(lark)
        return self._constraint("grammar", json.dumps({"grammars": [{"lark_grammar": lark}]}))

    def _constraint(self, name: str, grammar: str) -> Constraint:
        def begin() -> LLMatcher:
            matcher: LLMatcher = self._library.LLMatcher(self.tokenizer, grammar, log_level=0, limits=self._limits)
            return matcher

        try:
            with panics_as(InvalidArgumentError, f"{name} cannot be used: llguidance failed on it"):
                constraint = call_deeply(lambda: Constraint(begin, self._num_ids), _MOST_SECONDS)
        except TimeoutError as error:
            raise InvalidArgumentError(
                f"{name} cannot be used: to compile it takes more than {_MOST_SECONDS} seconds: make it simpler"
            ) from error
        reason = constraint.why_unfulfillable()
        if reason is not None:
            raise InvalidArgumentError(f"{name} cannot be used: {reason}")
        return constraint


class Constraint:
    """What may follow in one generation."""

    def __init__(self, begin: Callable[[], LLMatcher], num_ids: int) -> None:
        """``begin`` makes a matcher that stands before the first token."""
        self._begin = begin
        self._matcher = begin()
        self.mask = Mask(self._fill, num_ids)
        self._committed: list[int] = []
        self._ahead: list[int] = []  # tokens after them that the matcher has taken and that are only drafted
        self._next = np.zeros((num_ids + _WORD_BITS - 1) // _WORD_BITS, dtype=np.uint32)
        self._is_next_known = False  # whether that is the mask after what was committed

    @property
    def is_dead_end(self) -> bool:
        """Whether nothing may follow what was committed, not even the end of the text."""
        return not self._mask_of_next().any()

    def commit(self, token_ids: Sequence[int]) -> None:
        """Take over the tokens that were emitted, an end-of-text id perhaps the last of them.

        Raises:
            InternalError: the mask allowed one that the grammar refuses.
        """
        if not token_ids:
            return
        if not self._move_to(token_ids) and not self._matcher.is_stopped():
            raise InternalError(f"llguidance allowed the tokens {list(token_ids)}, and refuses them")
        self._committed += token_ids
        self._ahead = []
        self._is_next_known = False

    def why_unfulfillable(self) -> str | None:
        """Why nothing fulfils it, as far as the tokens that are certain tell, to be asked at the beginning."""
        error = _error_of(self._matcher)
        if error:
            return error
        matcher, words = self._matcher.deep_copy(), np.zeros_like(self._next)
        for _ in range(_MOST_FORCED):
            error = _compute(matcher, words)
            if error:
                return "nothing fulfils it" if error == _NOTHING_FOLLOWS else error
            if np.count_nonzero(words) != 1 or int(words.max()).bit_count() != 1:
                return None
            forced = int(np.argmax(words)) * _WORD_BITS + int(words.max()).bit_length() - 1
            is_taken = matcher.try_consume_tokens([forced])
            if not is_taken or matcher.is_stopped():
                return _error_of(matcher) or None
        return None

    def _mask_of_next(self) -> NDArray[np.uint32]:
        if not self._is_next_known:
            self._move_to([])
            _compute(self._matcher, self._next)
            self._is_next_known = True
        return self._next

    def _fill(self, path: Sequence[int], words: NDArray[np.uint32]) -> None:
        if not path:
            words[:] = self._mask_of_next()
            return
        # After a path that is itself not allowed nothing may follow: its mask stays empty.
        if self._move_to(path):
            _compute(self._matcher, words)
        if _error_of(self._matcher):  # in which a matcher stays, at tokens that are only drafted
            self._matcher = self._begin()
            self._ahead = []
            self._matcher.try_consume_tokens(self._committed)

    def _move_to(self, path: Sequence[int]) -> bool:
        """Go along a path after what was committed; False if it ends before."""
        num_common = 0
        while num_common < min(len(path), len(self._ahead)) and path[num_common] == self._ahead[num_common]:
            num_common += 1
        num_back = len(self._ahead) - num_common
        if num_back:
            self._matcher.rollback(num_back)
            del self._ahead[num_common:]
        rest = list(path[num_common:])
        if rest:
            self._ahead += rest[: self._matcher.try_consume_tokens(rest)]
        return len(self._ahead) == len(path)


def _compute(matcher: LLMatcher, words: NDArray[np.uint32]) -> str:
    """Fill the words with the mask of what may follow; if nothing may they are zero, and the reason is returned."""
    matcher.unsafe_compute_mask_ptr(words.__array_interface__["data"][0], words.nbytes)
    error = _error_of(matcher)
    if error:
        words[:] = 0
    return error


def _error_of(matcher: LLMatcher) -> str:
    """Why a matcher is in its error state; empty if it is not.

    Raises:
        InternalError: llguidance met a bug of its own.
    """
    if not matcher.is_error():
        return ""
    message = matcher.get_error()
    if not message.startswith("panic:"):
        return reason_of(message)
    if UnspellableError.__name__ in message:
        return _NOTHING_FOLLOWS
    if KeyboardInterrupt.__name__ in message:  # while llguidance called the tokenizer
        raise KeyboardInterrupt
    raise InternalError(f"llguidance failed: {reason_of(message)}")


def _llguidance() -> Any:
    try:
        import llguidance  # noqa: PLC0415 - an extra that most generations do without
    except ImportError as error:
        raise UnsupportedError("constrained text needs llguidance: pip install 'pilotfish[structured]'") from error
    return llguidance
