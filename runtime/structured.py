"""Text that parses: JSON schemas, regular expressions and grammars as masks over the vocabulary, by llguidance.

A matcher follows the tokens; for a drafted token it goes ahead along the path to it and back again, so that each row
of a block has the mask that plain decoding would have there.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import InvalidArgumentError, Mask, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from llguidance import LLMatcher, LLTokenizer
    from numpy.typing import NDArray

    from .options import GenerateOptions
    from .tokenizer import Tokenizer

# Between two tokens of JSON. llguidance's own pattern has no end, and a model at a loss may write blanks for ever.
_JSON_BLANKS = {"whitespace_pattern": r"[ \n\t]{0,16}"}


class Constraints:
    """Makes the constraints of an engine's generations. Reads its tokenizer, in about a second, for the first one."""

    def __init__(self, tokenizer: Tokenizer, num_ids: int, eos_ids: Sequence[int]) -> None:
        """Remember what to read."""
        self._source = (tokenizer, num_ids, eos_ids)
        self._lock = threading.Lock()
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
        try:
            self.tokenizer: LLTokenizer = self._library.LLTokenizer(
                tokenizer_json, n_vocab=num_ids, eos_token=list(eos_ids), slices=self._library.LLTokenizer.json_slices()
            )
        except Exception as error:  # the library raises what its Rust errors become
            raise UnsupportedError(f"llguidance cannot use this bundle's tokenizer: {_line(error)}") from error

    def json_schema(self, schema: Mapping[str, Any] | str) -> Constraint:
        """A constraint to what a JSON schema, a mapping or its text, describes.

        Raises:
            InvalidArgumentError: it is no schema, or nothing fulfils it.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            grammar = self._library.LLMatcher.grammar_from_json_schema(text, overrides=_JSON_BLANKS)
        except ValueError as error:
            raise InvalidArgumentError(f"json_schema is no JSON schema: {_line(error)}") from error
        return self._constraint("json_schema", grammar)

    def regex(self, pattern: str) -> Constraint:
        """A constraint to text that matches a regular expression from beginning to end, in Rust's syntax."""
        return self._constraint("regex", self._library.LLMatcher.grammar_from_regex(pattern))

    def grammar(self, lark: str) -> Constraint:
        """A constraint to a context-free grammar in llguidance's variant of Lark, beginning with the rule start."""
        return self._constraint("grammar", self._library.LLMatcher.grammar_from_lark(lark))

    def _constraint(self, name: str, grammar: str) -> Constraint:
        is_error, messages = self._library.LLMatcher.validate_grammar_with_warnings(grammar, self.tokenizer)
        if is_error:
            raise InvalidArgumentError(f"{name} cannot be used: {_line(messages[0])}")
        matcher = self._library.LLMatcher(self.tokenizer, grammar, log_level=0)
        if not any(matcher.compute_bitmask()) or matcher.is_error():
            raise InvalidArgumentError(f"{name} cannot be used: nothing fulfils it")
        return Constraint(matcher, self._num_ids)


class Constraint:
    """What may follow in one generation."""

    def __init__(self, matcher: LLMatcher, num_ids: int) -> None:
        """Begin before the first token."""
        self._matcher = matcher
        self.mask = Mask(self._fill, num_ids)
        self._ahead: list[int] = []  # tokens the matcher has taken that are only drafted

    def commit(self, token_ids: Sequence[int]) -> None:
        """Take over the tokens that were emitted, an end-of-text id perhaps the last of them."""
        self._move_to(token_ids)
        self._ahead = []

    def _fill(self, path: Sequence[int], words: NDArray[np.uint32]) -> None:
        # After a path that is itself not allowed nothing may follow: its mask stays empty.
        self._move_to(path)
        if len(self._ahead) == len(path):
            self._matcher.unsafe_compute_mask_ptr(words.__array_interface__["data"][0], words.nbytes)
            self._check()

    def _move_to(self, path: Sequence[int]) -> None:
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
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = _line(self._matcher.get_error())
            raise InvalidArgumentError(f"the grammar cannot be followed any further: {reason}")


def _llguidance() -> Any:
    try:
        import llguidance  # noqa: PLC0415 - an extra that most generations do without
    except ImportError as error:
        raise UnsupportedError("constrained text needs llguidance: pip install 'pilotfish[structured]'") from error
    return llguidance


def _line(message: object) -> str:
    """The first sentence of what llguidance says, without the state it appends."""
    return " ".join(str(message).split("<state>")[0].split())[:300]
