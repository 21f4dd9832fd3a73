"""transformers: python transformers_worker.py GGUF THREADS MODE [DRAFT_GGUF]; MODE: plain, lookup or draft (assisted).

It computes in float32: what its GGUF reader makes of the file.
"""

from __future__ import annotations

import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers
from protocol import serve
from transformers.generation.streamers import BaseStreamer

if TYPE_CHECKING:
    from collections.abc import Iterator

gguf, threads, mode = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(threads)


def load(path: Path) -> transformers.PreTrainedModel:
    """The model of a GGUF file."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()


model = load(gguf)
drafting = {
    "plain": dict,
    "lookup": lambda: {"prompt_lookup_num_tokens": 4},
    "draft": lambda: {"assistant_model": load(Path(sys.argv[4]))},
}[mode]()


class Arrivals(BaseStreamer):
    """Hands token ids to another thread; the prompt comes first and is left out."""

    def __init__(self) -> None:
        """Begin before the prompt."""
        self.tokens: queue.Queue[list[int] | None] = queue.Queue()
        self.has_prompt = False

    def put(self, value: torch.Tensor) -> None:
        """The prompt's ids, then each round's."""
        if self.has_prompt:
            self.tokens.put(value.flatten().tolist())
        self.has_prompt = True

    def end(self) -> None:
        """The last token was there."""
        self.tokens.put(None)


def stream(ids: list[int], new_tokens: int) -> Iterator[int]:
    """An answer's ids."""
    arrivals = Arrivals()
    options = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "do_sample": False, "streamer": arrivals}
    prompt = torch.tensor([ids])

    def generate() -> None:
        try:
            model.generate(prompt, attention_mask=torch.ones_like(prompt), **options, **drafting)
        finally:
            arrivals.tokens.put(None)

    thread = threading.Thread(target=generate)
    thread.start()
    while (tokens := arrivals.tokens.get()) is not None:
        yield from tokens
    thread.join()


serve(f"transformers {mode}", transformers.__version__, stream)
