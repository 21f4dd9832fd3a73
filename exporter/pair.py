"""Whether a draft may propose tokens for a target."""

from __future__ import annotations

from .errors import PairError
from .tokenizer import TokenizerInfo, first_difference


def check_pair(
    target_tokenizer: TokenizerInfo, draft_tokenizer: TokenizerInfo | None, target_vocab: int, draft_vocab: int
) -> None:
    """Allows equal vocabularies, or ones that differ only by padding beyond the tokenizer's tokens.

    Raises:
        PairError: a vocabulary smaller than the tokenizer, or a draft tokenizer with another token for an id.
    """
    sizes = f"target has {target_vocab} tokens, draft {draft_vocab}, the tokenizer {target_tokenizer.size}"
    if draft_tokenizer is not None:
        difference = first_difference(target_tokenizer.json_text, draft_tokenizer.json_text)
        if difference is not None:
            index, target_token, draft_token = difference
            raise PairError(
                f"target and draft do not share a vocabulary: {sizes}; the first token that differs is {index}, "
                f"{target_token!r} in the target and {draft_token!r} in the draft"
            )
    for name, size in (("target", target_vocab), ("draft", draft_vocab)):
        if size < target_tokenizer.size:
            raise PairError(f"the {name}'s vocabulary is too small: {sizes}; the first token it lacks is {size}")
