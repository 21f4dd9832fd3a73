"""samples/bench_shapes.py: what it writes is read by the exporter, in one file, in shards and as GGUF."""

from __future__ import annotations

import importlib.util
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


@pytest.fixture(scope="module")
def sample() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_shapes", SAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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
