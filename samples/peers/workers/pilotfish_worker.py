"""pilotfish: python pilotfish_worker.py BUNDLE THREADS SOURCE, where SOURCE is plain, lookup, draft, head or auto."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from protocol import serve

from pilotfish import Engine
from pilotfish.bindings import calls

if TYPE_CHECKING:
    from collections.abc import Iterator

bundle, threads, source = sys.argv[1], int(sys.argv[2]), sys.argv[3]
engine = Engine(bundle, threads=threads)


def stream(ids: list[int], new_tokens: int) -> Iterator[int]:
    """An answer's ids."""
    options = {"max_new_tokens": new_tokens, "ignore_eos": True, "reuse_prefix": False, "source": source}
    with engine.stream(ids, **options) as events:
        for event in events:
            yield event.token_id


serve(f"pilotfish {source}", calls.version(), stream)
