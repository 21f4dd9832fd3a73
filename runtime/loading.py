"""Loads a bundle: the library its models, and a thread what Python needs for text: beside it, before it in a budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pilotfish.bindings import PilotfishError, VerifyHashes, calls

from .background import Background
from .chat_template import ChatTemplate
from .memory import program_bytes
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from pilotfish.bindings import EngineHandle, EngineOptions

    from .manifest import Manifest


@dataclass(frozen=True, slots=True)
class BundleTexts:
    """What of a bundle is about text."""

    tokenizer: Tokenizer
    chat_template: ChatTemplate
    tool_template: ChatTemplate
    """For conversations with tools."""


def load(manifest: Manifest, options: EngineOptions) -> tuple[EngineHandle, BundleTexts]:
    """Open a bundle. Where several things are wrong with it, those about text are told.

    Args:
        manifest: the bundle's.
        options: without what Python itself takes, which is added.

    Raises:
        PilotfishError: the subclass says what is wrong.
    """
    options = replace(options, program_bytes=program_bytes(manifest))
    is_compared = options.verify_hashes is not VerifyHashes.NEVER
    texts = Background(partial(_read_texts, manifest, is_compared=is_compared), "pilotfish-tokenizer")
    if options.memory_budget_bytes is not None:
        texts.join()  # what reading takes for a moment is given back before the models come
    try:
        handle = calls.engine_open(str(manifest.path), options)
    except PilotfishError:
        texts.result()
        raise
    finally:
        texts.join()
    try:
        return handle, texts.result()
    except BaseException:
        handle.close()
        raise


def _read_texts(manifest: Manifest, *, is_compared: bool) -> BundleTexts:
    tokenizer = Tokenizer(manifest, is_compared=is_compared)
    special = tokenizer.special_tokens()
    chat = ChatTemplate(manifest.chat_template, special)
    own = manifest.tool_template
    return BundleTexts(tokenizer, chat, chat if own is None else ChatTemplate(own, special))
