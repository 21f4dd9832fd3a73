"""A head whose configuration contradicts its tensors is refused with both values, as soon as it is opened."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import tiny_heads
import torch
from head_runs import assert_close, run, run_steps, tap
from head_target import F32, IDS, HeadTarget, export_onto
from reference import heads as reference
from tiny_models import save_model, tiny_config
from tiny_mtp import add_mtp

from pilotfish.exporter import ExportOptions, export
from pilotfish.exporter.errors import CheckpointError, ExportError, UnexpectedError, UnsupportedModelError
from pilotfish.exporter.heads import open_head

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAKERS: dict[str, Callable[[], Any]] = {
    "medusa": tiny_heads.medusa,
    "mlp_speculator": tiny_heads.mlp_speculator,
    "eagle": tiny_heads.eagle,
    "eagle3": tiny_heads.eagle3,
}
CONTRADICTIONS = [
    ("medusa", {"medusa_num_heads": 2}, r"medusa_num_heads = 2, but by 2\.0\.linear\.weight it is 3"),
    ("medusa", {"medusa_num_layers": 2}, r"medusa_num_layers = 2, .* it is 1"),
    ("medusa", {"hidden_size": 32}, r"hidden_size = 32, .* it is 64"),
    ("mlp_speculator", {"n_predict": 2}, r"n_predict = 2, but by emb\.2\.weight it is 3"),
    ("mlp_speculator", {"inner_dim": 64}, r"inner_dim = 64, but by proj\.0\.weight it is 96"),
    ("mlp_speculator", {"emb_dim": 80}, r"emb_dim = 80, .* it is 64"),
    ("mlp_speculator", {"vocab_size": 300}, r"vocab_size = 300, but by emb\.0\.weight it is 258"),
    ("eagle", {"hidden_size": 128}, r"hidden_size = 128, but by fc\.weight it is 64"),
    ("eagle", {"vocab_size": 300}, r"vocab_size = 300, but by embed_tokens\.weight it is 258"),
    ("eagle", {"intermediate_size": 80}, r"intermediate_size = 80, .*gate_proj\.weight it is 96"),
    ("eagle", {"num_attention_heads": 8}, r"num_key_value_heads \* head_dim = 16, .*k_proj\.weight it is 32"),
    ("eagle", {"num_key_value_heads": 4}, r"num_key_value_heads \* head_dim = 64, .*k_proj\.weight it is 32"),
    ("eagle3", {"head_dim": 32}, r"num_key_value_heads \* head_dim = 64, .*k_proj\.weight it is 32"),
    ("eagle3", {"draft_vocab_size": 40}, r"draft_vocab_size = 40, but by lm_head\.weight it is 51"),
    ("eagle3", {"target_hidden_size": 48}, r"3 streams of target_hidden_size 48, in columns = 144, .* it is 192"),
    ("eagle3", {"architectures": ["LlamaForCausalLMEagle"]}, None),
    (
        "eagle3",
        {"architectures": ["LlamaForCausalLMEagle2"]},
        "names 'LlamaForCausalLMEagle2', but its tensors are .*'eagle3'",
    ),
    (
        "eagle",
        {"architectures": ["LlamaForCausalLMEagle3"]},
        "names 'LlamaForCausalLMEagle3', but its tensors are .*'eagle'",
    ),
    (
        "eagle",
        {"architectures": ["MedusaModel"]},
        "names 'MedusaModel', but its tensors are of|are those of kind 'eagle'",
    ),
    ("eagle", {"architectures": ["LlamaForCausalLMEagle4"]}, "a generation of EAGLE that is not supported"),
    ("eagle3", {"architectures": ["DFlashDraftModel"]}, "a kind of head that is not supported"),
    ("medusa", {"model_type": "mlp_speculator"}, "names 'mlp_speculator', but its tensors are those of kind 'medusa'"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), CONTRADICTIONS)
def test_contradictions(kind: str, settings: dict[str, Any], message: str | None, tmp_path: Path) -> None:
    tensors, config = MAKERS[kind]()
    head = tiny_heads.save_head(tmp_path / "head", tensors, config | settings)
    if message is None:  # a family's name, without a generation
        assert open_head(str(head)).kind == kind
        return
    with pytest.raises((CheckpointError, UnsupportedModelError), match=message):
        open_head(str(head))


VALUES = (None, True, 0, -1, 3, 2**40, 2**70, 0.5, float("nan"), 1e400, "", "x", [], [1], ["x"], {}, {"a": 1}, [[1]])
FURTHER = ("eagle_config", "stream_taps", "eagle_aux_hidden_state_layer_ids", "head_dim", "partial_rotary_factor")
FURTHER += ("target_hidden_size", "rope_parameters", "attention_bias", "speculators_model_type", "architectures")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> HeadTarget:
    torch.set_num_threads(1)
    return HeadTarget(tmp_path_factory.mktemp("target"), "llama")


@pytest.mark.parametrize("kind", MAKERS)
def test_wrong_values_of_every_key(kind: str, target: HeadTarget, tmp_path: Path) -> None:
    tensors, config = MAKERS[kind]()
    head = tiny_heads.save_head(tmp_path / "head", tensors, config)
    faults, number = [], 0
    for key in (*config, *FURTHER):
        for value in VALUES:
            (head / "config.json").write_text(json.dumps(config | {key: value}))
            number += 1
            try:
                export_onto(target, head, tmp_path / str(number))
            except ExportError as error:
                if isinstance(error, UnexpectedError):
                    faults.append(f"{key} = {value!r}: {error}")
            except BaseException as error:  # noqa: BLE001 - that there is none is what is tested
                faults.append(f"{key} = {value!r}: {error!r}")
    assert not faults


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3, 4), (64, 0)])
def test_wrong_shapes_of_every_tensor(kind: str, shape: tuple[int, ...], target: HeadTarget, tmp_path: Path) -> None:
    tensors, config = MAKERS[kind]()
    faults = []
    for number, name in enumerate(tensors):
        head = tiny_heads.save_head(tmp_path / f"head{number}", tensors | {name: torch.ones(shape)}, config)
        try:
            export_onto(target, head, tmp_path / str(number))
            faults.append(f"{name} may have shape {shape}")
        except ExportError as error:
            if isinstance(error, UnexpectedError):
                faults.append(f"{name}: {error}")
        except BaseException as error:  # noqa: BLE001 - that there is none is what is tested
            faults.append(f"{name}: {error!r}")
    assert not faults


@pytest.mark.parametrize("layout", ["deepseek", "mimo", "qwen3_next"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"intermediate_size": 80}, "intermediate_size = 80"),
        ({"num_key_value_heads": 4}, r"num_key_value_heads \* head_dim = 64, .* it is 32"),
    ],
)
def test_prediction_layers(layout: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    add_mtp(folder, layout)
    assert open_head(str(folder)).kind == "mtp"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(CheckpointError, match=message):
        open_head(str(folder))


def test_a_prediction_layer_of_another_place(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    add_mtp(folder, "deepseek")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    with pytest.raises(CheckpointError, match=r"num_hidden_layers = 1, but by model\.layers\.2\..* it is 2"):
        open_head(str(folder))


def speculators(*, normed: bool = False, **settings: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The EAGLE-3 head in the layout of the library "speculators"."""
    tensors, config = tiny_heads.eagle3()
    own = ("draft_vocab_size", "architectures")
    layer = {key: value for key, value in config.items() if key not in own} | {"head_dim": tiny_heads.HEAD_DIM}
    nested = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": config["draft_vocab_size"],
        "norm_before_residual": normed,
        "eagle_aux_hidden_state_layer_ids": None,
        "transformer_layer_config": layer,
        "speculators_config": {"algorithm": "eagle3"},
    }
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    return renamed, nested | settings


@pytest.mark.parametrize("normed", [False, True])
def test_the_speculators_layout(target: HeadTarget, tmp_path: Path, *, normed: bool) -> None:
    tensors, config = tiny_heads.eagle3()
    folder = tiny_heads.save_head(tmp_path / "head", *speculators(normed=normed))
    head = export_onto(target, folder, tmp_path / "out")
    assert (head.kind, head.taps, head.logit_ids) == ("eagle3", (2, 3, 4), tiny_heads.DRAFT_IDS)
    features = run(tmp_path / "out", "features", tap(target, head))["features"]
    expected = reference.eagle3_features([target.streams[index] for index in head.taps], tensors)
    assert_close(features, expected)
    found = run_steps(tmp_path / "out", head, features)
    state, logits = reference.eagle3(torch.tensor([*IDS[1:], 42]), expected, tensors, config, normed_residual=normed)
    assert_close(found["next_features"], state)
    assert_close(found["logits"], logits)


def test_the_speculators_layout_against_torch(target: HeadTarget, tmp_path: Path) -> None:
    folder = tiny_heads.save_head(tmp_path / "head", *speculators(normed=True))
    options = ExportOptions(target=F32.target, cache_dtype="f32", head_format="f32", parity_tokens=16)
    result = export(str(target.folder), tmp_path / "out", head=str(folder), options=options)
    assert result.head is not None
    assert result.head.parity is not None
    assert result.head.parity.kl < 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speculators_model_type": "dflash"}, "is a 'dflash' head in the speculators layout"),
        ({"speculators_model_type": None}, "is a None head in the speculators layout"),
        ({"norm_before_fc": True}, "has norm_before_fc = True, a norm that is not supported"),
        ({"norm_output": True}, "has norm_output = True"),
        ({"norm_before_residual": "yes"}, "norm_before_residual = 'yes', expected a bool"),
        ({"transformer_layer_config": 5}, "transformer_layer_config = 5; it must describe"),
        ({"transformer_layer_config": {"model_type": "gpt2"}}, "a decoder layer of 'gpt2'"),
        (
            {"transformer_layer_config": {"model_type": "llama", "sliding_window": 2048}},
            "has sliding_window = 2048 in its layer",
        ),
    ],
)
def test_variants_of_the_speculators_layout(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = tiny_heads.save_head(tmp_path / "head", *speculators(**settings))
    with pytest.raises((CheckpointError, UnsupportedModelError), match=message):
        open_head(str(folder))
