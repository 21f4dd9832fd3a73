"""What cannot be exported is refused with the layer or value and the reason, before anything is written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch
from architectures import SHAPE
from tiny_gguf import finish
from tiny_models import save_model, save_tokenizer, tiny_config
from transformers import (
    BertConfig,
    Gemma4TextConfig,
    GemmaConfig,
    GPTNeoConfig,
    GraniteMoeHybridConfig,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MiniCPM3Config,
    MixtralConfig,
    MptConfig,
    NemotronHConfig,
    Qwen3MoeConfig,
    Qwen3NextConfig,
    T5Config,
)

from pilotfish.bindings import PilotfishError
from pilotfish.exporter import ExportOptions, FormatChoice, ModelFormats, export
from pilotfish.exporter.errors import CheckpointError, ExportError, OptionError, TokenizerError, UnsupportedModelError
from pilotfish.exporter.model_check import check_supported

if TYPE_CHECKING:
    from command_line import CommandLine

QUICK = ExportOptions(parity=False)
SECONDS = 10  # that a refusal may take; one on a machine that does nothing else

UNSUPPORTED = {
    "unknown_rope": (
        lambda: tiny_config("llama", rope_parameters={"rope_type": "spiral", "rope_theta": 1e4}),
        "rope type is 'spiral'",
    ),
    "experts": (
        lambda: MixtralConfig(**SHAPE, num_local_experts=4),
        r"is a mixture of experts \(num_local_experts = 4",
    ),
    "fine_experts": (lambda: Qwen3MoeConfig(**SHAPE, num_experts=8), r"is a mixture of experts"),
    "layers_of_experts": (
        lambda: NemotronHConfig(**SHAPE, layers_block_type=["full_attention", "moe"], n_routed_experts=1),
        r"is a mixture of experts \('moe' layers in layer_types\)",
    ),
    "convolutions": (lambda: Lfm2Config(**SHAPE), r"\(lfm2\) has"),
    "recurrence": (lambda: MambaConfig(vocab_size=258, hidden_size=64, num_hidden_layers=2), r"\(mamba\) has"),
    "mamba_beside_attention": (
        lambda: GraniteMoeHybridConfig(
            **SHAPE, layer_types=["mamba", "attention"], num_local_experts=0, mamba_n_heads=8
        ),
        "'linear_attention' layers",
    ),
    "hybrid": (lambda: Qwen3NextConfig(**SHAPE, num_experts=0), "'linear_attention' layers"),
    "distances": (lambda: LlamaConfig(**SHAPE, alibi=True), r"bias by distance .* \(alibi is true\); of .* Falcon"),
    "distances_left_out": (
        lambda: MptConfig(d_model=64, n_heads=4, n_layers=2, vocab_size=258, attn_config={"alibi": False}),
        "states alibi = False in attn_config, which transformers' code leaves out; True is supported",
    ),
    "scaled_logits_left_out": (
        lambda: MptConfig(d_model=64, n_heads=4, n_layers=2, vocab_size=258, logit_scale=2.0),
        "states logit_scale = 2.0, which transformers' code leaves out",
    ),
    "own_attention": (
        lambda: GPTNeoConfig(vocab_size=258, hidden_size=64, num_layers=2, attention_types=[[["global"], 2]]),
        "attention of its own that does not go through transformers' attention interface",
    ),
    "shared_caches": (
        lambda: Gemma4TextConfig(**SHAPE, num_kv_shared_layers=2),
        r"uses the keys and values of another model in all layers \(num_kv_shared_layers = 2\)",
    ),
    "wide_heads": (lambda: GemmaConfig(**SHAPE, head_dim=520), "heads of 520 columns; at most 512"),
    "sizes_by_layer": (
        lambda: tiny_config("llama", per_layer_config={0: {"num_key_value_heads": 1, "intermediate_size": 32}}),
        r"sizes for single layers \(intermediate_size, num_key_value_heads in",
    ),
    "latent": (lambda: MiniCPM3Config(**SHAPE), r"has latent attention \(kv_lora_rank = "),
    "both_directions": (
        lambda: GemmaConfig(**SHAPE, head_dim=16, use_bidirectional_attention=True),
        r"attends in both directions \(use_bidirectional_attention = True\)",
    ),
    "encoder": (lambda: BertConfig(vocab_size=258, hidden_size=64, num_hidden_layers=1), r"is an encoder"),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_models(name: str, tmp_path: Path) -> None:
    """By the configuration alone: there are no tensors that could be read."""
    make, message = UNSUPPORTED[name]
    make().save_pretrained(tmp_path / "model")
    started = time.monotonic()
    with pytest.raises(UnsupportedModelError, match=message):
        export(str(tmp_path / "model"), tmp_path / "out", options=QUICK)
    assert time.monotonic() - started < SECONDS
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_text_that_stays_causal_beside_images_is_not_refused() -> None:
    config = Gemma4TextConfig(**SHAPE, head_dim=16, per_layer_config={}, use_bidirectional_attention="vision")
    check_supported(config, "this")


def test_an_encoder_decoder_is_not_a_causal_model(tmp_path: Path) -> None:
    T5Config(vocab_size=258).save_pretrained(tmp_path / "model")
    with pytest.raises(UnsupportedModelError, match="'t5' model, not a causal language model"):
        export(str(tmp_path / "model"), tmp_path / "out", options=QUICK)


def test_a_quantised_checkpoint(tmp_path: Path) -> None:
    config = tiny_config("llama")
    config.quantization_config = {"quant_method": "aqlm"}
    config.save_pretrained(tmp_path / "model")
    with pytest.raises(UnsupportedModelError, match="already quantised"):
        export(str(tmp_path / "model"), tmp_path / "out", options=QUICK)


@pytest.mark.parametrize("name", ["./no-such-model", "/no/such/model.gguf", "missing.gguf"])
def test_a_missing_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        export(name, tmp_path / "out", options=QUICK)


def test_a_name_that_is_neither_path_nor_id(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a local path nor a model id"):
        export("no such model!", tmp_path / "out", options=QUICK)


def test_a_file_that_is_not_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGML" + bytes(100))
    with pytest.raises(CheckpointError, match="not a complete GGUF file"):
        export(str(path), tmp_path / "out", options=QUICK)


def test_a_gguf_file_of_another_architecture(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    finish(writer)
    with pytest.raises(UnsupportedModelError, match=r"architecture 'mamba'; those of .*gemma3, .* are read"):
        export(str(tmp_path / "model.gguf"), tmp_path / "out", options=QUICK)


def test_a_folder_without_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no readable model configuration"):
        export(str(tmp_path), tmp_path / "out", options=QUICK)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    tiny_config("llama").save_pretrained(tmp_path / "model")
    save_tokenizer(tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        export(str(tmp_path / "model"), tmp_path / "out", options=QUICK)


def test_a_damaged_weights_file(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", tiny_config("llama"))
    data = (checkpoint / "model.safetensors").read_bytes()
    (checkpoint / "model.safetensors").write_bytes(data[:1000])
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        export(str(checkpoint), tmp_path / "out", options=QUICK)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    checkpoint = save_model(tmp_path / "model", tiny_config("llama"))
    tensors = load_file(checkpoint / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, checkpoint / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no tensor model\.layers\.1\.mlp\.down_proj\.weight"):
        export(str(checkpoint), tmp_path / "out", options=QUICK)


def test_a_model_without_tokenizer(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", tiny_config("llama"), tokenizer=False)
    with pytest.raises(TokenizerError, match="has no tokenizer"):
        export(str(checkpoint), tmp_path / "out", options=QUICK)


def test_a_damaged_tokenizer(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", tiny_config("llama"))
    (checkpoint / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(TokenizerError, match="cannot be read"):
        export(str(checkpoint), tmp_path / "out", options=QUICK)


def test_a_tokenizer_larger_than_the_model(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", tiny_config("llama", vocab_size=200, bos_token_id=1, eos_token_id=2))
    with pytest.raises(TokenizerError, match="258 tokens, model only 200"):
        export(str(checkpoint), tmp_path / "out", options=QUICK)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelFormats(linear="int3"), "linear format is 'int3'; choose one of int4"),
        (lambda: ModelFormats(lm_head=""), "lm_head format is ''"),
        (lambda: ExportOptions(cache_dtype="bf16"), "cache_dtype is 'bf16'; choose one of f16, f32, int8"),
        (lambda: ExportOptions(cache_dtype="fp8"), "cache_dtype is 'fp8'; choose one of f16, f32, int8"),
        (lambda: ExportOptions(max_positions=0), "max_positions is 0"),
        (lambda: ExportOptions(parity_tokens=5), "parity_tokens is 5"),
        (lambda: ExportOptions(draft_vocab=0), "draft_vocab is 0"),
        (lambda: export("none", Path("none"), options=ExportOptions(draft_vocab=9)), "draft_vocab is 9, but no draft"),
        (lambda: export("none", Path("none"), options=ExportOptions(head_vocab=9)), "head_vocab is 9, but no head"),
        (lambda: export("none", Path("none"), options=ExportOptions(head_format="f32")), "head_format is f32"),
        (
            lambda: export("none", Path("none"), options=ExportOptions(draft=FormatChoice(lm_head="f32"))),
            "draft_lm_head is f32, but no draft is exported",
        ),
    ],
)
def test_options_outside_their_range(make: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="file is not a folder that may be written to"):
        export("none", tmp_path / "file" / "below" / "out")


def test_every_error_is_an_export_error_and_pilotfishs() -> None:
    from pilotfish.exporter import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) > 8
    assert all(issubclass(kind, ExportError) for kind in kinds)
    assert issubclass(ExportError, PilotfishError)
    assert issubclass(ExportError, ValueError)


@pytest.mark.parametrize("name", ["BundleCorruptError", "BundleVersionError"])
def test_an_error_of_a_bundle_is_the_runtimes_too(name: str) -> None:
    from pilotfish import bindings
    from pilotfish.exporter import errors

    assert issubclass(getattr(errors, name), getattr(bindings, name))


def test_a_tokenizers_truncation_and_padding_stay_behind(tmp_path: Path) -> None:
    import json

    from tiny_bundles import BOS, EOS, byte_tokenizer
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    from pilotfish.exporter.tokenizer import load_tokenizer

    tokenizer = byte_tokenizer()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS).save_pretrained(tmp_path)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=24)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    info = load_tokenizer(tmp_path, LlamaConfig())
    assert info is not None
    assert [json.loads(info.json_text)[name] for name in ("truncation", "padding")] == [None, None]


@pytest.mark.parametrize("cache_dtype", ["bf16", "fp8"])
def test_the_command_refuses_a_cache_type_that_was_removed(tmp_path: Path, cli: CommandLine, cache_dtype: str) -> None:
    finished = cli("export", "none", "--cache-dtype", cache_dtype, "--out", tmp_path / "out")
    assert finished.exit_code == 2
    assert f"cache_dtype is '{cache_dtype}'; choose one of f16, f32, int8" in finished.err
    assert not (tmp_path / "out").exists()
