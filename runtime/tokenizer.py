"""The bundle's tokenizer.json: text to ids, and ids back to text as they arrive."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import (
    BundleCorruptError,
    BundleFileMissingError,
    InternalError,
    PilotfishError,
    UnsupportedError,
)

from .bundle_files import NotABundleFileError, read_bundle_file
from .option_checks import check_encodable, require
from .spelled_tokens import MARK, SpelledTokens
from .token_bytes import TokenBytes
from .tokenizer_checks import check_tokenizer
from .tokenizer_file import tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .manifest import Manifest

_MOST_BYTES = 256 << 20  # the largest in use have 35 MB
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# A character is at most 4 tokens (bytes); a longer undecodable tail is not a character in the making.
_MAX_OPEN_TOKENS = 16
_MAX_CHARACTER_TOKENS = 4


@contextlib.contextmanager
def _as_pilotfish_errors(kind: type[PilotfishError], what: str) -> Iterator[None]:
    """What tokenizers raises, bare Exceptions and panics, which are no Exceptions at all, as ours."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{what}: {error}") from error


class Tokenizer:
    """The tokenizer of target and draft."""

    def __init__(self, manifest: Manifest, *, is_compared: bool = True) -> None:
        """Load tokenizer.json, and compare its hash; BundleFileMissingError or BundleCorruptError names the file."""
        path = manifest.path / manifest.tokenizer.file
        text = _checked_text(manifest, is_compared=is_compared)
        content = check_tokenizer(path, text)
        with _as_pilotfish_errors(BundleCorruptError, f"{path} is not a tokenizer"):
            self._tokenizer = tokenizer_of(text, content)
        # What a checkpoint's file says about batches for training is none of a prompt's business.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._entry = manifest.tokenizer
        self.special_ids = {
            token.content: token_id
            for token_id, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        """Of the tokens that decode() leaves out, by their spelling."""
        self._special_ids = frozenset(self.special_ids.values())
        self._spelled = SpelledTokens(self.to_json, self.special_ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt, with the bundle's begin-of-text id where its model expects one; errors as below."""
        prefix = [self._entry.bos_id] if self._entry.add_bos and self._entry.bos_id is not None else []
        return prefix + self.encode_rendered(text)

    def encode_rendered(self, text: str) -> list[int]:
        """Ids of text that already holds its special tokens, such as a rendered chat.

        Raises:
            InvalidArgumentError: it is no text, or has half of a surrogate pair, which an undecodable byte becomes in
                argv and stdin.
            InternalError: the tokenizer gives up on it.
        """
        require("the text", text, isinstance(text, str), "a string")
        check_encodable("the text", text)
        with _as_pilotfish_errors(InternalError, "the tokenizer failed"):
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def marked(self, message: Any) -> Any:
        """A message whose spellings of special tokens encode_chat() takes for text; see spelled_tokens."""
        return self._spelled.marked(message)

    def encode_chat(self, text: str) -> list[int]:
        """encode_rendered() of a conversation that may have such messages."""
        if MARK not in text:
            return self.encode_rendered(text)
        check_encodable("the text", text)
        with _as_pilotfish_errors(InternalError, "the tokenizer failed"):
            return self._spelled.encode(text)

    def to_json(self) -> str:
        """The tokenizer.json."""
        return str(self._tokenizer.to_str())

    def spellings(self, num_ids: int) -> list[bytes]:
        """What each id spells, special tokens by their names; UnsupportedError if the tokens have no bytes."""
        try:
            # Which ids end the text makes no difference to what any of them spells.
            return TokenBytes(self.to_json(), num_ids, self._entry.eos_ids or (0,)).tokens
        except ValueError as error:
            raise UnsupportedError(f"the bundle's tokens have no bytes: {error}") from error

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens are left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def special_tokens(self) -> dict[str, str]:
        """Spellings a chat template may use: bos_token, eos_token and pad_token, each empty if there is none."""
        eos_id = self._entry.eos_ids[0] if self._entry.eos_ids else None
        ids = {"bos_token": self._entry.bos_id, "eos_token": eos_id, "pad_token": self._entry.pad_id}
        return {
            name: "" if token_id is None else (self._tokenizer.id_to_token(token_id) or "")
            for name, token_id in ids.items()
        }

    def is_special(self, token_id: int) -> bool:
        """Whether decode() leaves the id out."""
        return token_id in self._special_ids


def _checked_text(manifest: Manifest, *, is_compared: bool) -> bytes:
    """The bytes of the file that the manifest names, of its size and hash: what was checked is what is loaded."""
    entry = manifest.tokenizer
    path = manifest.path / entry.file
    try:
        content = read_bundle_file(manifest.path, entry.file, _MOST_BYTES)
    except OSError as error:
        raise BundleFileMissingError(f"{path} is missing ({error.strerror}): export the bundle again") from error
    except NotABundleFileError as error:
        raise BundleCorruptError(str(error)) from error
    if len(content) != entry.num_bytes:
        raise BundleCorruptError(f"{path} has {len(content)} bytes, expected {entry.num_bytes}")
    found = hashlib.sha256(content).hexdigest() if is_compared else entry.sha256
    if found != entry.sha256:
        raise BundleCorruptError(f"{path} has sha256 {found}, expected {entry.sha256}")
    return content


class Detokenizer:
    """Ids one at a time -> pieces of text that end on whole characters.

    Only a short window is decoded each time: the tokens of the last piece, which some decoders need as context, and
    those since. The pieces' concatenation is decode(ids) wherever the ids spell valid UTF-8.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Start an empty text."""
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._num_context = 0  # tokens of the window whose text is out
        self._context = ""  # that text
        self._has_open_character = False

    @property
    def has_open_character(self) -> bool:
        """Whether tokens are held back that may be the beginning of a character."""
        return self._has_open_character

    def push(self, token_id: int) -> str:
        """The text that became whole with this token, perhaps none."""
        if self._tokenizer.is_special(token_id):
            return ""
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        if not text.endswith(_REPLACEMENT):
            return self._release(text, len(self._window))
        self._has_open_character = True
        if len(self._window) - self._num_context > _MAX_OPEN_TOKENS:
            return self._release_undecodable(text)
        return ""

    def flush(self) -> str:
        """The text of the held back tokens, with replacement characters where they spell none."""
        if not self._has_open_character:
            return ""
        return self._release(self._tokenizer.decode(self._window), len(self._window))

    def _release(self, text: str, num_tokens: int) -> str:
        piece = text[len(self._context) :]
        self._window = self._window[self._num_context :]
        self._num_context = num_tokens - self._num_context
        self._context = self._tokenizer.decode(self._window[: self._num_context])
        self._has_open_character = False
        return piece

    def _release_undecodable(self, text: str) -> str:
        """Let go of a tail that is no character, cut where its two parts decode as the whole does."""
        last = len(self._window) - _MAX_CHARACTER_TOKENS
        for cut in range(last, last - _MAX_CHARACTER_TOKENS, -1):
            head, tail = self._tokenizer.decode(self._window[:cut]), self._tokenizer.decode(self._window[cut:])
            if head + tail == text:
                piece = head[len(self._context) :]
                self._window, self._num_context, self._context = self._window[cut:], 0, ""
                return piece
        return self._release(text, len(self._window))
