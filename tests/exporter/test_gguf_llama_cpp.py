"""The files that tests write and what is exported of them, beside llama.cpp's own computation of the same files.

Needs llama-cpp-python, which no test installs: pip install llama-cpp-python, then
pytest -m slow tests/exporter/test_gguf_llama_cpp.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gguf_families import GGUF_FAMILIES
from tiny_gguf import gguf_config, write_family
from tiny_models import save_random, save_tokenizer
from torch.nn import functional

from pilotfish import Engine
from pilotfish.exporter import ExportOptions, ModelFormats, export
from pilotfish.exporter.gguf import GgufReference, reference

if TYPE_CHECKING:
    from pathlib import Path

    import torch

pytestmark = pytest.mark.slow
PROMPTS = [[(7 * index + index * index // 5 + start) % 256 for index in range(100)] for start in (0, 50)]
NEW_TOKENS = 12
SHORT = 12  # of prompts to a model whose window llama.cpp does not read
_NO_WINDOW = ("Mistral", "Phi-3, Phi-4")
_WINDOWS = [*["sliding_attention"] * 3, "full_attention"]
_LARGE = {  # what llama.cpp reads of models with 64 layers alone: norms of heads, windows
    "Cohere 1": {"num_hidden_layers": 64},
    "EXAONE 4": {"num_hidden_layers": 64, "layer_types": _WINDOWS * 16},
    # It takes the last two layers that have caches for one with a window and one without.
    "Gemma 4, embeddings by layer": {"num_kv_shared_layers": 3},
    # Of Gemma 3n it knows numbers by heart, and wants keys of layers that do not use them: none shares a cache here.
    "Gemma 3n": {
        "num_hidden_layers": 20,
        "num_kv_shared_layers": 0,
        "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 4,
        "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 10,
        "laurel_rank": 64,
        "hidden_size_per_layer_input": 256,
    },
}
_LOOSE = 5e-2  # of logits of up to 10: llama.cpp looks GELU up in a table of halves


@pytest.fixture(scope="module")
def llama() -> Any:
    """llama.cpp's library."""
    return pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")


def llama_cpp_logits(llama: Any, path: Path, ids: list[int], num_context: int = 256) -> Any:
    """Logits f32 [num_tokens, vocab_size] of one pass."""
    parameters = llama.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(str(path).encode(), parameters)
    assert model
    options = llama.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = num_context
    options.n_threads = options.n_threads_batch = 1
    options.type_k = options.type_v = 0  # f32
    options.flash_attn_type = 0
    context = llama.llama_init_from_model(model, options)
    batch = llama.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for index, token in enumerate(ids):
        batch.token[index], batch.pos[index] = token, index
        batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, 1
    assert llama.llama_decode(context, batch) == 0
    found = np.ctypeslib.as_array(llama.llama_get_logits(context), shape=(len(ids), 258)).copy()
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    llama.llama_model_free(model)
    return found


_LOOSER = {"Gemma 4, embeddings by layer": 0.15}  # two such GELUs a layer
_APART = "Gemma 3n"  # compared by itself
_GATED = 0.15  # of logits of up to 6: a gate beside its limit goes either way


@pytest.mark.parametrize("name", [name for name in GGUF_FAMILIES if name != _APART])
def test_greedy_tokens_are_those_of_llama_cpp(
    name: str, llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, theirs = written_for_llama_cpp(name, tmp_path, monkeypatch)
    ours = write_family(name, folder, tmp_path / "ours.gguf")
    options = ExportOptions(
        target=ModelFormats("f32", "f32", "f32"), cache_dtype="f32", tokenizer=str(folder), parity_tokens=48
    )
    bundle = export(str(ours), tmp_path / "bundle", options=options).folder
    with Engine(bundle, threads=1, calibration="off") as engine:
        for prompt in PROMPTS:
            ids = prompt[:SHORT] if name in _NO_WINDOW else prompt
            found = list(engine.generate(ids, max_new_tokens=NEW_TOKENS, ignore_eos=True, source="plain").token_ids)
            scores = llama_cpp_logits(llama, theirs, ids + found)
            np.testing.assert_allclose(
                scores, GgufReference([ours]).logits(ids + found), atol=_LOOSER.get(name, _LOOSE), rtol=0
            )
            assert scores[len(ids) - 1 : -1].argmax(axis=1).tolist() == found


def test_gemma_3n_differs_by_llama_cpps_deviation_of_gates_alone(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It divides by one less than there are gates, of which a layer of this model has 96.

    The second reading with that, and with its GELU, has its logits; without, what transformers computes, it has not.
    """
    _, theirs = written_for_llama_cpp(_APART, tmp_path, monkeypatch)
    scores = [llama_cpp_logits(llama, theirs, prompt) for prompt in PROMPTS]
    as_trained = [GgufReference([theirs]).logits(prompt) for prompt in PROMPTS]
    assert min(np.abs(a - b).max() for a, b in zip(scores, as_trained, strict=True)) > 1

    exact = functional.gelu
    monkeypatch.setattr(functional, "gelu", lambda x, **options: exact(x.half().float(), **options).half().float())
    monkeypatch.setattr(reference, "sparse", sparse_as_llama_cpp)
    for prompt, found in zip(PROMPTS, scores, strict=True):
        np.testing.assert_allclose(found, GgufReference([theirs]).logits(prompt), atol=_GATED, rtol=0)


def sparse_as_llama_cpp(file: Any, layer: int, gate: torch.Tensor) -> torch.Tensor:
    """Gates above a number of deviations over their mean, less that; the deviation is that of a sample."""
    scale = file.values("activation_sparsity_scale")[layer]
    if math.isinf(scale):
        return gate
    return functional.relu(gate - gate.mean(-1, keepdim=True) - gate.std(-1, keepdim=True, unbiased=True) * scale)


def written_for_llama_cpp(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A tiny checkpoint of a family, and a file of it by which llama.cpp takes token ids."""
    family = GGUF_FAMILIES[name]
    monkeypatch.setitem(GGUF_FAMILIES, name, replace(family, changes={**family.changes, **_LARGE.get(name, {})}))
    checkpoint = save_random(folder / "model", gguf_config(name))
    save_tokenizer(checkpoint)
    without = {"tokenizer.ggml.model": "no_vocab", "{arch}.vocab_size": 258}
    return checkpoint, write_family(name, checkpoint, folder / "theirs.gguf", fields=without)
