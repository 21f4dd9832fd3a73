"""A configuration that describes no model that can be exported ends in one ExportError, before anything is traced."""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from architectures import config_of
from tiny_models import save_model, tiny_config
from transformers import modeling_utils

from pilotfish.exporter import ExportOptions, export, load
from pilotfish.exporter.checkpoint_check import check_checkpoint
from pilotfish.exporter.errors import (
    CheckpointError,
    ExportError,
    TokenizerError,
    UnexpectedError,
    UnsupportedModelError,
)
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.trace import computed_buffers

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ExportOptions(parity=False)
VALUES = (
    *(None, True, False, 0, -1, 1, 3, 7, 2**31, 2**63, 2**70, 0.5, 1e-30, 1e30, 1e400, float("nan")),
    *("", "llama", "auto", "../x", "\ud800", "a" * 10_000, "1e3", "bfloat16", "fp8", "dynamic"),
    *([], [1], [None], ["x"], [[1]], [99_999], {}, {"a": 1}, {"type": "linear"}, {"type": "dynamic", "factor": 2.0}),
    *({"rope_type": "yarn"}, {"rope_type": "llama3", "factor": 2}, {"rope_type": 5}, {"rope_theta": 0}),
)
FURTHER = ("quantization_config", "rope_scaling", "rope_theta", "auto_map", "is_encoder_decoder", "sliding_window")
FURTHER += ("layer_types", "text_config", "torch_dtype", "id2label", "attribute_map", "partial_rotary_factor")
FURTHER += ("per_layer_config",)
LONGEST_SECONDS = 10  # of one; a second on a machine that does nothing else


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_model(tmp_path_factory.mktemp("config") / "model", tiny_config("llama"))


@pytest.fixture
def config(model: Path) -> Any:
    """config.json, which is put back after the test."""
    text = (model / "config.json").read_text()
    yield json.loads(text)
    (model / "config.json").write_text(text)


def write(model: Path, config: Any) -> None:
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")


def check(model: Path) -> None:
    check_checkpoint(load_checkpoint(str(model)), uses_mtp=False, ignore_unused=False)


def test_wrong_values_of_every_key(model: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_checkpoint(str(model)).tokenizer
    monkeypatch.setattr(load, "load_tokenizer", lambda *_: tokenizer)  # takes most of the time
    refused, faults = 0, []
    for key in (*config, *FURTHER):
        for value in VALUES:
            write(model, config | {key: value})
            started = time.monotonic()
            try:
                check(model)
            except ExportError as error:
                refused += 1
                if isinstance(error, UnexpectedError) or "\n" in str(error):
                    faults.append(f"{key} = {value!r}: {error}")
            except BaseException as error:  # noqa: BLE001 - that there is none is what is tested
                faults.append(f"{key} = {value!r}: {error!r}")
            if time.monotonic() - started > LONGEST_SECONDS:
                faults.append(f"{key} = {value!r} took {time.monotonic() - started:.1f} s")
    assert not faults
    assert refused > len(VALUES) * 10


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"vocab_size": None}, CheckpointError, "vocab_size"),
        ({"max_position_embeddings": None}, CheckpointError, "max_position_embeddings"),
        ({"vocab_size": 1 << 40}, CheckpointError, r"vocab_size = 1099511627776; it must be a whole number in 1\.\."),
        ({"num_key_value_heads": 3}, CheckpointError, "num_attention_heads = 4 and num_key_value_heads = 3"),
        ({"rms_norm_eps": -1.0}, CheckpointError, r"rms_norm_eps = -1\.0"),
        ({"rms_norm_eps": math.nan}, CheckpointError, "has rms_norm_eps = nan, which is not a number"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 0.0}}, CheckpointError, r"rope_theta = 0\.0"),
        ({"rope_theta": 5.0}, CheckpointError, r"rope_theta = 5\.0 and 10000\.0 in its rope parameters"),
        ({"eos_token_id": 300}, TokenizerError, "names 300 as an end-of-sequence token"),
        ({"eos_token_id": 1.5}, ExportError, r"1\.5"),
        ({"model_type": "zamba9"}, CheckpointError, "model_type is 'zamba9', which transformers .* does not know"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "x.Y"}}, CheckpointError, r"\(auto_map\) is never run"),
        ({"model_type": "bart"}, UnsupportedModelError, "'bart'|is an encoder-decoder"),
        ({"quantization_config": {"quant_method": "gptq"}}, UnsupportedModelError, "already quantised with bits None"),
        (
            {"quantization_config": {"quant_method": "bitsandbytes"}},
            UnsupportedModelError,
            "load_in_8bit None; known are True",
        ),
        ({"quantization_config": {"quant_method": "aqlm"}}, UnsupportedModelError, "quant_method 'aqlm'; known are"),
        (
            {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}},
            UnsupportedModelError,
            r"\(gpt_oss\) is a mixture of experts",  # rather than how its matrices are stored
        ),
        (
            {"quantization": {"bits": 4, "group_size": 64}},
            UnsupportedModelError,
            "already quantised \\(by MLX: quantiz",
        ),
        ({"quantization_config": "awq"}, UnsupportedModelError, r"\(quantization_config is 'awq'\)"),
        ({"compression_config": {"format": "pack-quantized"}}, UnsupportedModelError, "quant_method 'unknown'"),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": [1]}},
            CheckpointError,
            "settings of compressed-tensors that cannot be read",
        ),
        ({"hidden_act": "relu6x"}, CheckpointError, "no llama model has this configuration"),
    ],
)
def test_each_has_its_sentence(
    changes: dict[str, Any],
    kind: type[ExportError],
    message: str,
    *,
    model: Path,
    config: dict[str, Any],
    tmp_path: Path,
) -> None:
    write(model, {key: value for key, value in (config | changes).items() if value is not None})
    with pytest.raises(kind, match=message):
        export(str(model), tmp_path / "out", options=QUICK)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("file", "method"), [("quantize_config.json", "GPTQ"), ("quant_config.json", "AWQ")])
def test_files_of_quantising_tools(file: str, method: str, model: Path) -> None:
    (model / file).write_text("{}")
    try:
        with pytest.raises(UnsupportedModelError, match=rf"already quantised \({method}: {file}, without"):
            check(model)
    finally:
        (model / file).unlink()


@pytest.mark.parametrize("text", ["", "[]", "nonsense", "[" * 100_000, '{"model_type": ', "\x00\xff"])
def test_what_is_no_configuration(text: str, model: Path, config: dict[str, Any]) -> None:
    del config
    (model / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match="has no readable model configuration"):
        check(model)


def test_an_adapter_alone_names_its_base(tmp_path: Path) -> None:
    text = json.dumps({"peft_type": "LORA", "base_model_name_or_path": "some/base"})
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"adapter alone \(LORA\): export its base, some/base, with --adapter"):
        load_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"rope_scaling": None}, ("default", None)),
        (
            {"rope_parameters": None, "rope_theta": 777.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
            ("linear", 4.0),
        ),
        ({"rope_parameters": {"type": "linear", "factor": 4.0, "rope_theta": 777.0}}, ("linear", 4.0)),
    ],
)
def test_spellings_of_rope_scaling(changes: dict[str, Any], found: Any, model: Path, config: dict[str, Any]) -> None:
    """onnxruntime-genai#2609: a stray null and the old key "type" were read wrong."""
    write(
        model, {key: value for key, value in (config | changes).items() if value is not None or key == "rope_scaling"}
    )
    parameters = load_checkpoint(str(model)).config.rope_parameters
    assert (parameters["rope_type"], parameters.get("factor")) == found
    assert parameters["rope_theta"] == (10000.0 if found[1] is None else 777.0)


def test_another_name_of_a_needed_key(tmp_path: Path) -> None:
    """EXAONE 3.5 is published with num_layers, which its class reads as num_hidden_layers."""
    checkpoint = save_model(tmp_path / "model", config_of("EXAONE 3.5"))
    config = json.loads((checkpoint / "config.json").read_text())
    num_layers = config.pop("num_hidden_layers")
    write(checkpoint, config | {"num_layers": num_layers})
    check(checkpoint)
    write(checkpoint, config)
    with pytest.raises(CheckpointError, match=r"has no num_hidden_layers in its config\.json"):
        check(checkpoint)


@pytest.mark.parametrize(
    ("name", "without", "instead"),
    [
        ("Bloom", "hidden_size", {"n_embed": 64}),
        ("Falcon 7B", "hidden_size", {"n_embed": 64}),
        ("Falcon 7B", "max_position_embeddings", {}),
        ("Falcon RW", "max_position_embeddings", {}),
    ],
)
def test_keys_that_published_files_lack(name: str, without: str, instead: dict[str, Any], tmp_path: Path) -> None:
    """Bloom's say n_embed, and Falcon's leave out the 2048 positions of their class."""
    checkpoint = save_model(tmp_path / "model", config_of(name))
    config = json.loads((checkpoint / "config.json").read_text())
    del config[without]
    write(checkpoint, config | instead)
    check(checkpoint)
    found = load_checkpoint(str(checkpoint)).config
    assert getattr(found, without) == instead.get("n_embed", 2048)


WRONG_NUMBERS: list[tuple[str, dict[str, Any], str]] = [
    ("Phi-1.5, Phi-2", {"layer_norm_eps": -1.0}, r"layer_norm_eps = -1\.0; it must lie between 0 and 1"),
    ("GPT-2", {"layer_norm_epsilon": 5.0}, r"layer_norm_epsilon = 5\.0; it must lie"),
    ("Nemotron", {"norm_eps": 0.0}, r"norm_eps = 0\.0; it must lie"),
    ("StarCoder 2", {"norm_epsilon": -1e-5}, r"norm_epsilon = -1e-05; it must lie"),
    ("Gemma 2", {"attn_logit_softcapping": 0.0}, r"attn_logit_softcapping = 0\.0; it must be above 0"),
    ("Gemma 2", {"final_logit_softcapping": -5.0}, r"final_logit_softcapping = -5\.0; it must be above 0"),
    ("Gemma 2", {"query_pre_attn_scalar": -4}, "query_pre_attn_scalar = -4; it must be above 0"),
    ("Granite 3", {"logits_scaling": 0}, "logits_scaling = 0; it must be above 0"),
    ("OLMo 1", {"clip_qkv": -1.0}, r"clip_qkv = -1\.0; it must be above 0"),
    ("MPT", {"attn_config": {"clip_qkv": -1.0}}, r"clip_qkv = -1\.0; it must be above 0"),
    ("Falcon 40B", {"num_kv_heads": 3}, "num_attention_heads = 4 and num_kv_heads = 3, which does not divide it"),
    ("Falcon 40B", {"num_kv_heads": 0}, r"num_kv_heads = 0; it must be a whole number in 1\.\."),
    ("GPT-J", {"rotary_dim": 7}, r"rotary_dim = 7; it must be an even number in 2\.\.16, a head's size"),
    ("CodeGen", {"rotary_dim": 64}, r"rotary_dim = 64; it must be an even number in 2\.\.16"),
    ("Gemma 3n", {"activation_sparsity_pattern": [1.0] * 6}, r"each must lie in 0\.\.1, below 1"),
    ("Gemma 3n", {"altup_active_idx": 5}, r"altup_active_idx = 5; it must be in 0\.\.3"),
]
WRONG_ROPES: list[tuple[str, dict[str, Any], str]] = [
    ("Gemma 3", {"full_attention": {"rope_type": "linear", "factor": 0}}, "factor = 0 in its rope parameters"),
    ("StableLM 2", {"partial_rotary_factor": 0}, "partial_rotary_factor = 0; it must be above 0 and at most 1"),
    ("GLM-4-0414", {"partial_rotary_factor": 2.0}, r"partial_rotary_factor = 2\.0; it must be above 0 and at most 1"),
    ("StableLM 2", {"partial_rotary_factor": 0.01}, "rotates 0 of 16 columns of a head; it must be an even number"),
]


@pytest.mark.parametrize(("name", "changes", "message"), WRONG_NUMBERS)
def test_numbers_that_no_model_computes_with(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    """By whatever name a family has them; without tensors, so by the configuration alone."""
    config_of(name).save_pretrained(tmp_path)
    write(tmp_path, json.loads((tmp_path / "config.json").read_text()) | changes)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(str(tmp_path))


@pytest.mark.parametrize(("name", "changes", "message"), WRONG_ROPES)
def test_rope_parameters_of_any_kind_of_layer(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    config_of(name).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    rope = config["rope_parameters"]
    for key, value in changes.items():
        rope[key] = rope[key] | value if isinstance(value, dict) else value
    write(tmp_path, config)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(str(tmp_path))


def test_frequencies_that_are_not_finite(tmp_path: Path) -> None:
    """Found when the tables are made: what makes them is the model's own code."""
    checkpoint = save_model(tmp_path / "model", config_of("Phi-3.5, Phi-4-mini"))
    config = json.loads((checkpoint / "config.json").read_text())
    rope = config["rope_parameters"]
    rope["short_factor"] = [0.0] * len(rope["short_factor"])
    write(checkpoint, config)
    with pytest.raises(CheckpointError, match="is not finite; look at the numbers of the rope parameters"):
        export(str(checkpoint), tmp_path / "out", options=QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_kind_of_layers_that_nothing_computes(tmp_path: Path) -> None:
    """Qwen 3's code takes each kind but windows for full attention, and has no mask for it."""
    config_of("Qwen 3").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    write(tmp_path, config | {"layer_types": ["full_attention", "chunked_attention"]})
    with pytest.raises(UnsupportedModelError, match=r"has 'chunked_attention' layers .* of sliding attention"):
        load_checkpoint(str(tmp_path))


def test_a_matrix_without_elements(tmp_path: Path) -> None:
    """Whatever key makes it so."""
    checkpoint = save_model(tmp_path / "model", config_of("GPT-2"))
    write(checkpoint, json.loads((checkpoint / "config.json").read_text()) | {"n_inner": 0})
    with pytest.raises(
        CheckpointError, match=r"makes tensor transformer\.h\.0\.mlp\.c_fc\.weight \[64, 0\], without el"
    ):
        check(checkpoint)


def test_stop_ids_of_the_whole_model_hold_for_its_text_part(tmp_path: Path) -> None:
    """Gemma 3 4B says them beside its text part, which has one of them as its class's default."""
    checkpoint = save_model(tmp_path / "model", config_of("Gemma 3, text").text_config)
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "generation_config.json").unlink()
    del config["eos_token_id"]
    write(checkpoint, {"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": config})
    tokenizer = load_checkpoint(str(checkpoint)).tokenizer
    assert tokenizer is not None
    assert set(tokenizer.eos_ids) == {1, 106, 257}  # the last one is the tokenizer's


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_the_old_spelling_of_a_refused_type(key: str, model: Path, config: dict[str, Any]) -> None:
    del config["rope_parameters"]
    write(model, config | {key: {"type": "spiral", "factor": 2.0}})
    with pytest.raises(UnsupportedModelError, match="rope type is 'spiral'"):
        load_checkpoint(str(model))


@pytest.mark.parametrize("text", ["{", "[]", '{"eos_token_id": "x"}'])
def test_a_damaged_generation_config(text: str, model: Path) -> None:
    path = model / "generation_config.json"
    before = path.read_text()
    path.write_text(text)
    try:
        with pytest.raises(ExportError, match=r"(generation_config|end-of-sequence)"):
            load_checkpoint(str(model))
    finally:
        path.write_text(before)


def test_a_model_card_that_is_no_text(model: Path) -> None:
    (model / "README.md").write_bytes(b"---\nlicense: \xff\xfe\n---\n")
    assert load_checkpoint(str(model)).licence
    (model / "README.md").unlink()


def test_code_of_a_checkpoint_is_never_run(model: Path, config: dict[str, Any], tmp_path: Path) -> None:
    """Neither where transformers has the model itself nor where it does not."""
    ran = tmp_path / "ran"
    (model / "own.py").write_text(f"open({os.fspath(ran)!r}, 'w')\n")
    auto_map = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    try:
        write(model, config | {"auto_map": auto_map})
        check(model)
        write(model, config | {"auto_map": auto_map, "model_type": "own"})
        with pytest.raises(CheckpointError, match="never run"):
            check(model)
    finally:
        (model / "own.py").unlink()
    assert not ran.exists()


def test_a_kernel_that_a_configuration_names_is_never_asked_for(
    model: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers takes an attn_implementation with a slash for a repository with code."""
    asked: list[Any] = []
    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", lambda *names, **_: asked.append(names))
    write(model, config | {"attn_implementation": "someone/attention"})
    assert "model.rotary_emb.inv_freq" in computed_buffers(load_checkpoint(str(model)).config)
    assert not asked
