"""Everything a user can set about an export, checked once here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .contract import CACHE_TYPES, FORMATS
from .errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

_PARITY_TOKENS = (16, 1024)
_BITS = (4, 8)  # of int4 and int8
PARTS = ("linear", "embedding", "lm_head")


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """Storage formats of one model's weights (keys of `contract.GROUP_BYTES`); None follows the checkpoint.

    Raises:
        OptionError: a format that is not one of `contract.FORMATS`.
    """

    linear: str | None = None
    embedding: str | None = None
    lm_head: str | None = None

    def __post_init__(self) -> None:
        for part in PARTS:
            value = getattr(self, part)
            if value is not None and value not in FORMATS:
                raise OptionError(f"{part} format is {value!r}; choose one of {', '.join(FORMATS)}")


@dataclass(frozen=True, slots=True)
class ModelFormats(FormatChoice):
    """A choice that leaves nothing open."""

    linear: str = "int4"
    embedding: str = "int8"
    lm_head: str = "int8"

    def of(self, part: str, _names: tuple[str, ...]) -> str:
        """The format of a matrix: that of its part."""
        return str(getattr(self, part))


# Where the checkpoint has plain weights. A draft's are tried beside FAST_FORMATS.
DEFAULT_FORMATS = {"target": ModelFormats(), "draft": ModelFormats("int8", "int4", "int4")}
FAST_FORMATS = ModelFormats("int4", "int4", "int4")
DEFAULT_HEAD_FORMAT = "int8"
SMALLER_HEAD_FORMATS = tuple(FormatChoice(name, name, name) for name in ("int4", "int4_asym"))  # tried beside it


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of `export`.

    target, draft: weight formats of the two models; a target's part that is None follows the checkpoint's own blocks
        (of a GGUF file), or DEFAULT_FORMATS where its weights are plain. A draft's takes these or
        FAST_FORMATS, by what promises more tokens a second on a few prompts.
    calibration: a text file that the target reads while its 4-bit matrices are rounded, so that errors make up for each
        other. None rounds each weight to the nearest value.
    bits: bits of a weight of the target's linear layers on average, beside the scales of blocks: each matrix gets the
        format by which the calibration text shows least error. None: one format for all plain matrices.
    head_format: weight format of a head's matrices. None: DEFAULT_HEAD_FORMAT or one of SMALLER_HEAD_FORMATS, by what
        promises more tokens a second on a few prompts. What a head borrows from the target is shared with it, in the
        target's format, except for an output layer where another format is asked for or chosen.
    cache_dtype: the type of the key and value caches, a key of `contract.CACHE_TYPES`.
    draft_vocab, head_vocab: the draft, and the head, scores so many ids only. None: as many as promise most tokens a
        second; a head that was trained for some ids keeps them.
    draft_vocab_text: a text file whose most frequent tokens these ids are; None takes those of a built-in text and the
        first ids, as byte-pair tokenizers number tokens by frequency.
    max_positions: rows of the rotary tables, the longest context the bundle can run; None takes the model's limit.
    tokenizer: folder or hub id to take the tokenizer from instead of the target's own.
    parity: compare the exported graphs with torch and fail over tolerance.
    parity_tokens: tokens of the built-in text that the parity check runs, 16..1024.
    overwrite: replace an existing output folder.
    ignore_unused: export a checkpoint although some of its tensors are left out, or differ from what they are tied to.

    Raises:
        OptionError: a value outside its range.
    """

    target: FormatChoice = FormatChoice()
    draft: FormatChoice = FormatChoice()
    calibration: Path | None = None
    bits: float | None = None
    head_format: str | None = None
    cache_dtype: str = "f16"
    draft_vocab: int | None = None
    head_vocab: int | None = None
    draft_vocab_text: Path | None = None
    max_positions: int | None = None
    tokenizer: str | None = None
    parity: bool = True
    parity_tokens: int = 192
    overwrite: bool = False
    ignore_unused: bool = False

    def __post_init__(self) -> None:
        if self.head_format is not None and self.head_format not in FORMATS:
            raise OptionError(f"head_format is {self.head_format!r}; choose one of {', '.join(FORMATS)}")
        if self.cache_dtype not in CACHE_TYPES:
            raise OptionError(f"cache_dtype is {self.cache_dtype!r}; choose one of {', '.join(CACHE_TYPES)}")
        for name, value in (("draft_vocab", self.draft_vocab), ("head_vocab", self.head_vocab)):
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; it must be at least 1")
        if self.max_positions is not None and self.max_positions < 1:
            raise OptionError(f"max_positions is {self.max_positions}; it must be at least 1")
        if self.draft_vocab_text is not None and not self.draft_vocab_text.is_file():
            raise OptionError(f"draft_vocab_text {self.draft_vocab_text} cannot be read: there is no such file")
        if self.calibration is not None and not self.calibration.is_file():
            raise OptionError(f"calibration {self.calibration} cannot be read: there is no such file")
        self._check_bits()
        least, most = _PARITY_TOKENS
        if not least <= self.parity_tokens <= most:
            raise OptionError(f"parity_tokens is {self.parity_tokens}; it must lie in {least}..{most}")

    def _check_bits(self) -> None:
        if self.bits is None:
            return
        if not _BITS[0] <= self.bits <= _BITS[1]:  # also catches not-a-number
            raise OptionError(f"bits is {self.bits:g}; it must lie in {_BITS[0]}..{_BITS[1]}")
        if self.calibration is None:
            raise OptionError(
                f"bits is {self.bits:g}, but there is no text to find out by where they matter: calibration"
            )
        if self.target.linear is not None:
            raise OptionError(
                f"bits is {self.bits:g} and linear is {self.target.linear}: bits chooses the formats of linear layers; "
                "leave one of them out"
            )

    def check_parts(self, *, has_draft: bool, has_head: bool) -> None:
        """Refuses what is said about a draft or head that is not exported.

        Raises:
            OptionError: naming the first such option.
        """
        about_draft = {f"draft_{part}": getattr(self.draft, part) for part in PARTS} | {"draft_vocab": self.draft_vocab}
        about_head = {"head_format": self.head_format, "head_vocab": self.head_vocab}
        for part, is_there, about in (("draft", has_draft, about_draft), ("head", has_head, about_head)):
            for name, value in about.items():
                if value is not None and not is_there:
                    raise OptionError(f"{name} is {value}, but no {part} is exported; give one or leave it out")
        if self.draft_vocab_text is not None and not has_draft and not has_head:
            raise OptionError(f"draft_vocab_text is {self.draft_vocab_text}, but no draft or head is exported")
