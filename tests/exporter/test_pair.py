"""Which drafts may speak for which targets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tiny_bundles import byte_tokenizer

from pilotfish.exporter.errors import PairError
from pilotfish.exporter.pair import check_pair
from pilotfish.exporter.tokenizer import TokenizerInfo

TOKENIZER = TokenizerInfo(byte_tokenizer().to_str(), 258, 256, (257,), None, add_bos=False, chat_template=None)


def renamed(token: str, other: str) -> TokenizerInfo:
    data = json.loads(TOKENIZER.json_text)
    vocabulary = data["model"]["vocab"]
    vocabulary[other] = vocabulary.pop(token)
    return replace(TOKENIZER, json_text=json.dumps(data))


@pytest.mark.parametrize(("target", "draft"), [(258, 258), (258, 320), (320, 258), (272, 320)])
def test_padding_may_differ(target: int, draft: int) -> None:
    check_pair(TOKENIZER, TOKENIZER, target, draft)
    check_pair(TOKENIZER, None, target, draft)


def test_a_vocabulary_below_the_tokenizer_is_refused() -> None:
    with pytest.raises(
        PairError, match=r"draft's vocabulary is too small: target has 258 tokens, draft 250, .* lacks is 250"
    ):
        check_pair(TOKENIZER, None, 258, 250)


def test_the_first_token_that_differs_is_named() -> None:
    with pytest.raises(
        PairError, match=r"target has 258 tokens, draft 258.* differs is 32, 'A' in the target and 'AA'"
    ):
        check_pair(TOKENIZER, renamed("A", "AA"), 258, 258)


def test_a_draft_with_more_tokens_is_refused() -> None:
    larger = byte_tokenizer()
    larger.add_tokens(["extra"])
    other = replace(TOKENIZER, json_text=larger.to_str(), size=259)
    with pytest.raises(PairError, match="differs is 258, None in the target and 'extra' in the draft"):
        check_pair(TOKENIZER, other, 320, 320)
