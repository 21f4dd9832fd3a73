"""OpenVINO GenAI: python openvino_worker.py GGUF THREADS MODE, where MODE is plain or lookup (its prompt lookup)."""

from __future__ import annotations

import queue
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
import openvino_genai as genai
from protocol import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

gguf, threads, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
extra = {"prompt_lookup": True} if mode == "lookup" else {}
pipe = genai.LLMPipeline(gguf, "CPU", INFERENCE_NUM_THREADS=threads, **extra)


class Arrivals(genai.StreamerBase):
    """Hands token ids to another thread."""

    def __init__(self) -> None:
        """Begin before the first token."""
        super().__init__()
        self.tokens: queue.Queue[list[int] | None] = queue.Queue()

    def write(self, token: int | list[int]) -> genai.StreamingStatus:
        """One token, or those of a round."""
        self.tokens.put(list(token) if isinstance(token, list) else [token])
        return genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """The last token was there."""


def stream(ids: list[int], new_tokens: int) -> Iterator[int]:
    """An answer's ids."""
    config = genai.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True, do_sample=False)
    if mode == "lookup":
        config.num_assistant_tokens, config.max_ngram_size = 5, 3
    array = np.array([ids], dtype=np.int64)
    arrivals = Arrivals()

    def generate() -> None:
        try:
            pipe.generate(genai.TokenizedInputs(ov.Tensor(array), ov.Tensor(np.ones_like(array))), config, arrivals)
        finally:
            arrivals.tokens.put(None)

    thread = threading.Thread(target=generate)
    thread.start()
    while (tokens := arrivals.tokens.get()) is not None:
        yield from tokens
    thread.join()


serve(f"OpenVINO GenAI {mode}", genai.__version__, stream)
