"""LoRA adapters in peft's layout, merged by the exporter, against torch with the adapter's own branches beside it."""

from __future__ import annotations

import math
from argparse import ArgumentParser
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tiny_adapters import Tensors, pair, save_adapter
from tiny_models import save_model, tiny_config
from transformers import AutoModelForCausalLM, GPT2Config

from pilotfish.exporter import ExportError, ExportOptions, ModelFormats, export, read_manifest
from pilotfish.exporter.adapters import with_adapters
from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.parity import graph_outputs
from pilotfish.exporter.prequantised import Method
from pilotfish.exporter.progress import NoProgress
from pilotfish.exporter.reference_model import torch_logits
from pilotfish.exporter.trace import build_on_meta
from pilotfish.runtime.cli.optimum_command import PilotfishExportCommand

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import CommandLine

IDS = [7, 20, 100, 33, 65, 10, 250, 3]
Q_PROJ, DOWN_PROJ, EMBEDDING = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj", "model.embed_tokens"
GPT2 = {"vocab_size": 258, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("adapters") / "base", tiny_config("llama"))


def branch(tensors: Tensors, module: str, scaling: float) -> Callable[..., torch.Tensor]:
    """What a pair adds to its module's output, as peft computes it while it trains."""
    down, up = (tensors[f"base_model.model.{module}.lora_{half}.weight"] for half in "AB")

    def add(_module: torch.nn.Module, arguments: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        return output + scaling * (arguments[0] @ down.T @ up.T)

    return add


def expected_logits(base: Path, hooks: dict[str, Callable[..., torch.Tensor]]) -> np.ndarray:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    for module, hook in hooks.items():
        model.get_submodule(module).register_forward_hook(hook)
    with torch.no_grad():
        return model(input_ids=torch.tensor([IDS])).logits[0].numpy()


def merged_logits(base: Path, *adapters: str) -> np.ndarray:
    checkpoint = with_adapters(load_checkpoint(str(base)), adapters, NoProgress())
    source = checkpoint.source(build_on_meta(checkpoint.config))
    return torch_logits(checkpoint.config, source.read, source.read, IDS)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "rank", "scaling"),
    [
        ({}, 4, 3.0),
        ({"use_rslora": True}, 4, 12 / math.sqrt(4)),
        ({"rank_pattern": {"down_proj": 2}}, 2, 6.0),
        ({"rank_pattern": {r"layers\.1.mlp.down_proj": 2}, "alpha_pattern": {f"^{DOWN_PROJ}": 5}}, 2, 2.5),
        ({"alpha_pattern": {"^mlp.down_proj": 5, "own_proj": 6}}, 4, 3.0),  # neither is the module's name
    ],
)
def test_a_pair_is_scaled_as_its_configuration_says(
    base: Path, tmp_path: Path, settings: dict[str, Any], rank: int, scaling: float
) -> None:
    tensors = pair(Q_PROJ, 64, 64) | pair(DOWN_PROJ, 64, 96, rank)
    adapter = save_adapter(tmp_path / "adapter", tensors, **settings)
    first = 12 / math.sqrt(4) if "use_rslora" in settings else 3.0
    hooks = {Q_PROJ: branch(tensors, Q_PROJ, first), DOWN_PROJ: branch(tensors, DOWN_PROJ, scaling)}
    expected = expected_logits(base, hooks)
    assert np.abs(expected - expected_logits(base, {})).max() > 0.1
    assert_close(merged_logits(base, adapter), expected)


def test_names_that_peft_keeps_adapters_apart_by(base: Path, tmp_path: Path) -> None:
    tensors = pair(Q_PROJ, 64, 64)
    named = {name.replace(".weight", ".default.weight"): values for name, values in tensors.items()}
    adapter = save_adapter(tmp_path / "adapter", named)
    assert_close(merged_logits(base, adapter), expected_logits(base, {Q_PROJ: branch(tensors, Q_PROJ, 3.0)}))
    others = {name.replace(".default", ".second"): 2 * values for name, values in named.items()}
    both = save_adapter(tmp_path / "both", named | others)
    with pytest.raises(CheckpointError, match="tensors of the adapters default, second; save one of them"):
        merged_logits(base, both)


def test_dora_scales_each_row(base: Path, tmp_path: Path) -> None:
    tensors = pair(Q_PROJ, 64, 64)
    magnitude = torch.rand(64) + 0.5
    named = tensors | {f"base_model.model.{Q_PROJ}.lora_magnitude_vector": magnitude}
    adapter = save_adapter(tmp_path / "adapter", named, use_dora=True)
    add = branch(tensors, Q_PROJ, 3.0)

    def hook(module: torch.nn.Module, arguments: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        whole = (
            module.weight
            + 3.0
            * tensors[f"base_model.model.{Q_PROJ}.lora_B.weight"]
            @ (tensors[f"base_model.model.{Q_PROJ}.lora_A.weight"])
        )
        return add(module, arguments, output) * (magnitude / whole.norm(dim=1))

    assert_close(merged_logits(base, adapter), expected_logits(base, {Q_PROJ: hook}))


def test_transposed_layers_of_gpt2(tmp_path: Path) -> None:
    base = save_model(tmp_path / "base", GPT2Config(**GPT2, bos_token_id=256, eos_token_id=257))
    square, wide = "transformer.h.0.attn.c_proj", "transformer.h.1.attn.c_attn"
    tensors = pair(square, 64, 64) | pair(wide, 192, 64)
    adapter = save_adapter(tmp_path / "adapter", tensors, fan_in_fan_out=True)
    hooks = {module: branch(tensors, module, 3.0) for module in (square, wide)}
    assert_close(merged_logits(base, adapter), expected_logits(base, hooks))


def test_whole_tensors_embeddings_and_biases(tmp_path: Path) -> None:
    base = save_model(tmp_path / "base", tiny_config("qwen2"))
    torch.manual_seed(5)
    down, up, head, bias = (torch.randn(*shape) for shape in ((4, 258), (64, 4), (258, 64), (64,)))
    tensors = pair(Q_PROJ, 64, 64) | pair("lm_head", 258, 64)
    named = tensors | {
        f"base_model.model.{EMBEDDING}.lora_embedding_A": down,
        f"base_model.model.{EMBEDDING}.lora_embedding_B": up,
        "base_model.model.lm_head.base_layer.weight": head,  # beside its pair, as peft saves it
        f"base_model.model.{Q_PROJ}.base_layer.bias": bias,
    }
    adapter = save_adapter(tmp_path / "adapter", named, bias="all")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model.get_submodule(EMBEDDING).register_forward_hook(lambda _m, ids, out: out + 3.0 * (down.T[ids[0]] @ up.T))
    model.get_submodule(Q_PROJ).register_forward_hook(branch(tensors, Q_PROJ, 3.0))
    model.get_submodule("lm_head").register_forward_hook(branch(tensors, "lm_head", 3.0))
    model.lm_head.weight.data, model.get_submodule(Q_PROJ).bias.data = head, bias
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([IDS])).logits[0].numpy()
    assert_close(merged_logits(base, adapter), expected)


def test_an_export_merges_adapters_in_order(base: Path, tmp_path: Path) -> None:
    tensors = pair(Q_PROJ, 64, 64)
    whole = {f"base_model.model.{Q_PROJ}.weight": torch.eye(64)}
    first = save_adapter(tmp_path / "one", whole, modules_to_save=["q_proj"])
    adapters = [first, save_adapter(tmp_path / "two", tensors, base_model_name_or_path="other/model")]
    exact = ExportOptions(target=ModelFormats("f32", "f32", "f32"), cache_dtype="f32", parity_tokens=16)
    with pytest.warns(UserWarning, match="two names other/model as its base, and is merged into base"):
        result = export(str(base), tmp_path / "out", adapters=adapters, options=exact)
    add = branch(tensors, Q_PROJ, 3.0)
    expected = expected_logits(base, {Q_PROJ: lambda module, x, _out: add(module, x, x[0])})
    (found,) = graph_outputs(result.folder / "target.onnx", IDS, "f32", ["logits"])
    assert_close(found, expected)
    source = result.manifest.models["target"].source
    assert (source.id, source.sha256) == ("base + one + two", None)


A_WEIGHT, B_WEIGHT = (f"base_model.model.{Q_PROJ}.lora_{half}.weight" for half in "AB")
REFUSED = {
    "another model": (pair(f"{Q_PROJ}s", 64, 64), {}, r"2 tensor\(s\) that base has no place for .*another model"),
    "another size": (pair(Q_PROJ, 64, 128), {}, r"q_proj.weight in the shape \[64, 128\], base has it as \[64, 64\]"),
    "another rank": (pair(Q_PROJ, 64, 64, 8), {}, r"\[8, 64\] and \[64, 8\], its configuration makes it of rank 4"),
    "half a pair": ({A_WEIGHT: torch.ones(4, 64)}, {}, r"lora_A.weight for .*, which is no LoRA pair"),
    "no magnitude": (pair(Q_PROJ, 64, 64), {"use_dora": True}, "which is no DoRA pair"),
    "a magnitude": (
        pair(Q_PROJ, 64, 64) | {f"base_model.model.{Q_PROJ}.lora_magnitude_vector": torch.ones(64)},
        {},
        "which is no LoRA pair",
    ),
    "a vocabulary": ({"base_model.model.lm_head.weight": torch.ones(260, 64)}, {}, "or for one with another vocab"),
    "a strange name": ({"model.layers.0.x": torch.ones(1)}, {}, r"no place for \(model.layers.0.x\)"),
    "nothing": ({}, {}, "has no tensors; the adapter changes nothing"),
    "not a number": (
        {A_WEIGHT: torch.full((4, 64), math.nan), B_WEIGHT: torch.ones(64, 4)},
        {},
        "has 256 values that are NaN",
    ),
    "another kind": ({}, {"peft_type": "IA3"}, "an adapter of type 'IA3'; LORA is supported"),
    "another start": ({}, {"init_lora_weights": "pissa"}, "init_lora_weights = 'pissa', which changes the base"),
    "a variant": ({}, {"alora_invocation_tokens": [1]}, r"alora_invocation_tokens = \[1\], which is not merged"),
    "an expression": ({}, {"alpha_pattern": {"(a+)+": 1}}, r"'\(a\+\)\+' in its alpha_pattern; names of modules"),
    "no flag": ({}, {"use_rslora": "true"}, "use_rslora = 'true'; it must be true or false"),
    "half a rank": (pair(Q_PROJ, 64, 64), {"r": 4.5}, "its configuration makes it of rank 4.5"),
    "no tensor of a target": (
        pair(Q_PROJ, 64, 64),
        {"target_modules": ["q_proj", "down_proj", "another"]},
        "names down_proj in its configuration, but has no tensor of it",
    ),
    "no whole tensor": (pair(Q_PROJ, 64, 64), {"modules_to_save": ["lm_head"]}, "names lm_head in its configuration"),
    "integers": (
        {A_WEIGHT: torch.ones(4, 64, dtype=torch.int8), B_WEIGHT: torch.ones(64, 4)},
        {},
        "lora_A.weight in I8; save it in F32 or F16",
    ),
    "no number": ({}, {"lora_alpha": "x"}, "lora_alpha = 'x'; it must be a number above 0"),
    "no rank": ({}, {"r": 0}, "r = 0; it must be a number above 0"),
    "a list": ({}, {"rank_pattern": [1]}, r"rank_pattern = \[1\]; it must map names"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_merged_is_refused(base: Path, tmp_path: Path, case: str) -> None:
    tensors, settings, message = REFUSED[case]
    adapter = save_adapter(tmp_path / "adapter", tensors, **settings)
    with pytest.raises(ExportError, match=message):
        export(str(base), tmp_path / "out", adapters=[adapter], options=ExportOptions(parity=False))
    assert not (tmp_path / "out").exists()


def test_tied_tensors_stay_as_they_are(tmp_path: Path) -> None:
    base = save_model(tmp_path / "base", tiny_config("llama_tied"))
    rows = AutoModelForCausalLM.from_pretrained(base).get_input_embeddings().weight.data.clone()
    name = f"base_model.model.{EMBEDDING}.weight"
    same = save_adapter(tmp_path / "same", pair(Q_PROJ, 64, 64) | {name: rows})
    assert_close(merged_logits(base, same), merged_logits(base, save_adapter(tmp_path / "none", pair(Q_PROJ, 64, 64))))
    other = save_adapter(tmp_path / "other", {name: rows + 1})
    with pytest.raises(UnsupportedModelError, match=r"changes model.embed_tokens.weight, which base .* lm_head.weight"):
        merged_logits(base, other)


def test_folders_and_bases_that_cannot_have_adapters(base: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    damaged = save_adapter(tmp_path / "damaged", {})
    (tmp_path / "damaged" / "adapter_model.safetensors").write_bytes(b"x")
    pickled = save_adapter(tmp_path / "pickled", {})
    (tmp_path / "pickled" / "adapter_model.safetensors").rename(tmp_path / "pickled" / "adapter_model.bin")
    checkpoint = load_checkpoint(str(base))
    for folder, message in (
        (str(tmp_path / "missing"), "missing is not a folder"),
        (str(tmp_path / "empty"), "it has no adapter_config.json"),
        (damaged, "cannot be read as safetensors"),
        (pickled, r"has no adapter_model.safetensors; save the adapter with peft's save_pretrained"),
    ):
        with pytest.raises(CheckpointError, match=message):
            with_adapters(checkpoint, [folder], NoProgress())
    with pytest.raises(CheckpointError, match=r"adapter alone \(LORA\): export its base, some/base, with --adapter"):
        load_checkpoint(damaged)


def test_quantised_bases_are_refused(base: Path) -> None:
    checkpoint = load_checkpoint(str(base))
    file = replace(checkpoint, path=base / "config.json")  # one file, as of GGUF
    with pytest.raises(UnsupportedModelError, match="base is a GGUF file, and an adapter is merged before"):
        with_adapters(file, ["any"], NoProgress())
    with pytest.raises(UnsupportedModelError, match="base is quantised already, and an adapter is merged before"):
        with_adapters(replace(checkpoint, prequantised=Method(("gptq",))), ["any"], NoProgress())


def test_the_commands_take_adapters(base: Path, tmp_path: Path, cli: CommandLine) -> None:
    adapters = [save_adapter(tmp_path / name, pair(Q_PROJ, 64, 64)) for name in ("one", "two")]
    given = [part for adapter in adapters for part in ("--adapter", adapter)]
    finished = cli("export", base, *given, "--no-parity", "--out", tmp_path / "out")
    assert finished.exit_code == 0, finished.err
    assert "base + one + two" in read_manifest(tmp_path / "out").models["target"].source.id
    parser = ArgumentParser()
    PilotfishExportCommand.parse_args(parser)
    assert parser.parse_args(["-m", str(base), *given, "out"]).adapter == adapters
