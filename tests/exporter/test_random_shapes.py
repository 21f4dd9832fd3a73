"""samples/bench_shapes.py and samples/peers/shape_files.py: the exporter reads what they write, and all of it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from transformers import LlamaConfig, Qwen2Config

from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.trace import build_on_meta

if TYPE_CHECKING:
    from types import ModuleType

SAMPLE = Path(__file__).parents[2] / "samples" / "bench_shapes.py"
SHAPES = {"llama": (LlamaConfig, 256, 3, 4, 2, 512, 300), "qwen": (Qwen2Config, 96, 3, 4, 2, 256, 300)}


def module_of(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sample() -> ModuleType:
    module = module_of(SAMPLE)
    module._NUM_RANDOM = 1 << 12  # tensors that are longer than the numbers, as of a large model
    return module


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", ["one", "shards", "file.gguf"])
def test_a_random_checkpoint_is_read(
    shape: str, place: str, sample: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "_SHAPES", SHAPES)
    config: Any = sample.shape_config(shape)
    largest = 2 * config.vocab_size * config.hidden_size
    sample.main(shape, tmp_path / place, largest if place == "shards" else 1 << 30)
    if (tmp_path / place).is_dir():
        assert (len(list((tmp_path / place).glob("*.safetensors"))) > 1) == (place == "shards")
    checkpoint = load_checkpoint(str(tmp_path / place))
    source = checkpoint.source(build_on_meta(checkpoint.config))
    for name, expected in sample.tensor_shapes(config).items():
        values = source.read(name)
        assert values.shape == expected
        if len(expected) > 1:
            assert np.std(values) * expected[1] ** 0.5 == pytest.approx(1, rel=0.3), name
            assert abs(np.mean(values)) < 0.2 * np.std(values), name
    assert sorted(source.names()) == sorted(sample.tensor_shapes(config))


@pytest.mark.parametrize("embedding", ["Q8_0", "Q6_K"])
@pytest.mark.parametrize("name", ["Qwen3-1.7B", "Gemma-3-1B", "SmolLM3-3B", "Phi-4-mini"])
def test_a_shape_beside_llama_cpp_is_read(name: str, embedding: str, tmp_path: Path) -> None:
    files = module_of(SAMPLE.parent / "peers" / "shape_files.py")
    shape = replace(files.SHAPES[name], hidden=256, layers=1, feed_forward=256, vocabulary=300)
    files.write_shape(shape, tmp_path / "model.gguf", files.Kind[embedding])
    checkpoint = load_checkpoint(str(tmp_path / "model.gguf"))
    model = build_on_meta(checkpoint.config)
    source = checkpoint.source(model)
    expected = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items() if key != "lm_head.weight"}
    assert {key: source.shape(key) for key in source.names() if key != "lm_head.weight"} == expected
    for key, dims in expected.items():
        values = source.read(key)
        assert np.isfinite(values).all()
        if len(dims) > 1:
            assert np.std(values) * dims[1] ** 0.5 == pytest.approx(1, rel=0.3), key
