"""llama.cpp: python llama_cpp_worker.py GGUF THREADS MODE, where MODE is plain or lookup (its prompt lookup)."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from protocol import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

gguf, threads, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = llama_cpp.Llama(
    gguf,
    n_ctx=4096,
    n_threads=threads,
    n_threads_batch=threads,
    verbose=False,
    draft_model=LlamaPromptLookupDecoding(num_pred_tokens=4) if mode == "lookup" else None,  # what it advises for CPUs
    logits_all=mode == "lookup",
)


def stream(ids: list[int], new_tokens: int) -> Iterator[int]:
    """An answer's ids; the cache of the prompt before is thrown away, as in the other engines."""
    model.reset()
    yield from itertools.islice(model.generate(ids, temp=0.0, repeat_penalty=1.0, reset=True), new_tokens)


serve(f"llama.cpp {mode}", llama_cpp.__version__, stream)
