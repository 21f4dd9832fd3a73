"""llama.cpp for real_shapes.py: python llama_cpp_passes.py GGUF THREADS CONTEXT.

By its C functions, as llama-bench does: its Python sampler would take part of the time of a large vocabulary.
"""

from __future__ import annotations

import sys
import time

import llama_cpp
import numpy as np
from pass_protocol import ids_of, serve_passes

gguf, threads, num_context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
parameters = llama_cpp.llama_model_default_params()
parameters.n_gpu_layers = 0
model = llama_cpp.llama_model_load_from_file(gguf.encode(), parameters)
options = llama_cpp.llama_context_default_params()
options.n_ctx = options.n_batch = num_context
options.n_threads = options.n_threads_batch = threads
context = llama_cpp.llama_init_from_model(model, options) if model else None
if not context:
    sys.exit(f"llama.cpp cannot open {gguf}")
memory = llama_cpp.llama_get_memory(context)
vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
batch = llama_cpp.llama_batch_init(num_context, 0, 1)


def run(ids: list[int], start: int, *, all_logits: bool) -> None:
    """One pass over ids from a position on."""
    batch.n_tokens = len(ids)
    for index, token in enumerate(ids):
        batch.token[index], batch.pos[index] = token, start + index
        batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
        batch.logits[index] = int(all_logits or index == len(ids) - 1)
    if llama_cpp.llama_decode(context, batch) != 0:
        sys.exit("llama_decode failed")


def best() -> int:
    """The likeliest id behind the last row."""
    logits = llama_cpp.llama_get_logits_ith(context, -1)
    return int(np.ctypeslib.as_array(logits, shape=(vocabulary,)).argmax())


def passes(rows: int, num_before: int, repeats: int) -> list[float]:
    """Seconds of each pass over rows after a context, logits of all rows included."""
    llama_cpp.llama_memory_clear(memory, 0)
    run(ids_of(num_before), 0, all_logits=False)
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(ids_of(rows), num_before, all_logits=True)
        found.append(time.perf_counter() - start)
        llama_cpp.llama_memory_seq_rm(memory, 0, num_before, -1)
    return found


def decode(prompt: int, tokens: int) -> float:
    """Seconds from the first token to the last."""
    llama_cpp.llama_memory_clear(memory, 0)
    run(ids_of(prompt), 0, all_logits=False)
    token, start = best(), time.perf_counter()
    for index in range(tokens - 1):
        run([token], prompt + index, all_logits=False)
        token = best()
    return time.perf_counter() - start


serve_passes(llama_cpp.__version__, passes, decode)
