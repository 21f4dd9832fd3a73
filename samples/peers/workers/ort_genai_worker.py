"""ONNX Runtime GenAI: python ort_genai_worker.py MODEL_FOLDER THREADS plain; its model builder makes the folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import onnxruntime_genai as genai
from protocol import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

folder, threads, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
config = genai.Config(folder)
config.overlay(f'{{"model": {{"decoder": {{"session_options": {{"intra_op_num_threads": {threads}}}}}}}}}')
model = genai.Model(config)


def stream(ids: list[int], new_tokens: int) -> Iterator[int]:
    """An answer's ids."""
    parameters = genai.GeneratorParams(model)
    length = len(ids) + new_tokens
    parameters.set_search_options(max_length=length, min_length=length, do_sample=False, batch_size=1)
    generator = genai.Generator(model, parameters)
    generator.append_tokens(ids)
    while not generator.is_done():
        generator.generate_next_token()
        yield int(generator.get_next_tokens()[0])


serve(f"ONNX Runtime GenAI {mode}", genai.__version__, stream)
