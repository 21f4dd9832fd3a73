"""What pilotfish verify goes over: every way to draft. A new one joins by a line here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .options import GenerateKeywords

if TYPE_CHECKING:
    from .engine import Engine

PLAIN = GenerateKeywords(num_draft_tokens=0)
# Tokens a round that the widest source below asks for: the engine must be opened with as many.
MAX_DRAFT_TOKENS = 15


@dataclass(frozen=True, slots=True)
class Source:
    """A way to draft."""

    name: str
    options: GenerateKeywords
    needs_draft: bool = True
    """Whether only bundles with a draft model have it."""
    drafts_by_model: bool = True
    """Whether every proposal is the draft model's, so that acceptance says something about the model."""
    needs_head: bool = False
    """Whether only bundles with a head have it."""

    @property
    def is_fixed(self) -> bool:
        """Whether it drafts so many tokens whatever they cost; otherwise as many as pay, which may be none."""
        return bool({"num_draft_tokens", "tree"} & self.options.keys())

    @property
    def is_drawn(self) -> bool:
        """Whether its tokens are drawn where drafts are accepted by rejection, so that the text is not plain's."""
        return "num_draft_tokens" in self.options and self.options.get("source") != "lookup"


def _of_head(name: str, options: GenerateKeywords) -> Source:
    options = options | GenerateKeywords(source="head")
    return Source(name, options, needs_draft=False, drafts_by_model=False, needs_head=True)


_SOURCES = (
    *(Source(f"chain of {k}", GenerateKeywords(num_draft_tokens=k)) for k in (1, 2, 4, 8)),
    Source("draft", GenerateKeywords(source="draft")),
    Source("dynamic tree of 15", GenerateKeywords(tree="dynamic", tree_nodes=15)),
    *(
        _of_head(f"head, {name}", options)
        for name, options in (
            ("chain of 1", GenerateKeywords(num_draft_tokens=1)),
            ("chain of 3", GenerateKeywords(num_draft_tokens=3)),
            ("as many as pay", GenerateKeywords()),
            ("dynamic tree of 15", GenerateKeywords(tree="dynamic", tree_nodes=15)),
        )
    ),
    Source("lookup", GenerateKeywords(source="lookup", num_draft_tokens=8), needs_draft=False, drafts_by_model=False),
    Source("lookup+draft", GenerateKeywords(source="lookup+draft"), drafts_by_model=False),
    Source(
        "lookup+head",
        GenerateKeywords(source="lookup+head"),
        needs_draft=False,
        drafts_by_model=False,
        needs_head=True,
    ),
    Source("auto", GenerateKeywords(), needs_draft=False, drafts_by_model=False),
)


def sources_of(engine: Engine) -> tuple[Source, ...]:
    """The sources that the engine's bundle has."""
    info = engine.info
    return tuple(
        source
        for source in _SOURCES
        if (info.has_draft or not source.needs_draft) and (info.has_head or not source.needs_head)
    )
