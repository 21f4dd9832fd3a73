"""Faults that users of other engines reported, as tests of the right behaviour here: caches, vocabularies, cost.

The table of all rows is in test_field_issues.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish import Engine
from pilotfish.runtime.options import GenerateKeywords
from pilotfish.runtime.verify import PROMPTS
from pilotfish.runtime.verify_checks import Amount, greedy_checks
from pilotfish.runtime.verify_rollback import rollback_checks
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, PLAIN, sources_of

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 24
AMOUNT = Amount(new_tokens=24)


@pytest.mark.parametrize(
    ("linear", "cache_dtype"),
    [*(("int4", dtype) for dtype in ("f16", "f32", "int8")), ("f32", "f32"), ("f32", "int8")],
)
def test_every_cache_type_survives_verification_and_rollback(
    checkpoints: dict[str, Path], tmp_path: Path, cache_dtype: str, linear: str
) -> None:
    """Rows 20, 22, 23, 118: equal to plain decoding, and accepting as much, in every precision of cache and weights."""
    from pilotfish.exporter import ExportOptions, ModelFormats, export

    formats = ModelFormats(linear=linear, embedding="int8", lm_head="int8")
    options = ExportOptions(target=formats, draft=formats, cache_dtype=cache_dtype, parity=False)
    export(str(checkpoints["target"]), tmp_path / "bundle", draft=str(checkpoints["draft"]), options=options)
    with Engine(tmp_path / "bundle", threads=1, max_draft_tokens=MAX_DRAFT_TOKENS, num_sequences=2) as engine:
        assert {model.cache_dtype for model in engine.manifest.models} == {cache_dtype}
        prompts = [engine.encode(prompt) for prompt in PROMPTS]
        for source in sources_of(engine):
            checks = [
                *greedy_checks(engine, prompts, source, AMOUNT),
                *rollback_checks(engine, prompts, source, AMOUNT),
            ]
            assert all(check.passed for check in checks), [check for check in checks if not check.passed]


def test_a_request_that_does_not_draft_leaves_the_draft_alone(tiny_bundle: Path) -> None:
    """Row 8: neither its passes nor its cache cost anything."""
    with Engine(tiny_bundle, threads=1) as engine:
        for options in (GenerateKeywords(num_draft_tokens=0), GenerateKeywords(source="plain")):
            stats = engine.generate("plain", **(options | GenerateKeywords(max_new_tokens=40, ignore_eos=True))).stats
            assert (stats.num_drafted, stats.num_prefilled_draft, stats.draft_seconds) == (0, 0, 0.0)
            assert stats.num_rounds == stats.num_new_tokens - 1


def test_a_padded_vocabulary(tmp_path: Path) -> None:
    """Row 34: the target's logits have rows beyond the tokenizer's, the draft's fewer; none of them is ever a token."""
    import torch
    from tiny_bundles import byte_tokenizer, export_pair, save_checkpoint
    from transformers import LlamaForCausalLM

    folders = {}
    for name, num_rows, noise in (("target", 320, 0.0), ("draft", 288, 0.15)):
        folder = save_checkpoint(tmp_path / name, byte_tokenizer(), spread=0.5, noise=noise)
        model = LlamaForCausalLM.from_pretrained(folder)
        model.resize_token_embeddings(num_rows, mean_resizing=False)
        with torch.no_grad():
            model.lm_head.weight[258:] = 3 * model.lm_head.weight[:30].abs().max()  # likelier than any token
        model.save_pretrained(folder)
        folders[name] = folder
    bundle = export_pair(tmp_path / "bundle", folders["target"], folders["draft"])
    with Engine(bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        assert engine.info.vocab_size == 320
        for source in sources_of(engine):
            for temperature in (0.0, 1.5):
                options = GenerateKeywords(max_new_tokens=60, ignore_eos=True, temperature=temperature, seed=1)
                result = engine.generate("padded", **(source.options | options))
                assert max(result.token_ids) < 258, source.name
                if temperature == 0:
                    plain = engine.generate("padded", **(PLAIN | options))
                    assert result.token_ids == plain.token_ids, source.name


def test_a_chat_begins_with_one_begin_of_text(tiny_bundle: Path, tmp_path: Path) -> None:
    """Row 41: what the template writes is all, in the first turn and in every later one."""
    bundle = with_manifest(tiny_bundle, tmp_path, lambda manifest: manifest["tokenizer"].update(add_bos=True))
    template = "{{ bos_token }}{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}"
    with_template = with_manifest(bundle, tmp_path / "again", lambda manifest: manifest.update(chat_template=template))
    with Engine(with_template, threads=1) as engine:
        bos = engine.manifest.tokenizer.bos_id
        assert bos is not None
        assert engine.encode("x") == [bos, *engine.encode("x")[1:]]
        messages = []
        for turn in range(3):
            messages += [{"role": "user", "content": f"turn {turn}"}, {"role": "assistant", "content": "well"}]
            ids = engine.encode_chat(messages)
            assert (ids[0], ids.count(bos)) == (bos, 1)


def with_manifest(bundle: Path, folder: Path, change: Callable[[dict], object]) -> Path:  # type: ignore[type-arg]
    copy = Path(shutil.copytree(bundle, folder / "bundle"))
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


@pytest.fixture(scope="module")
def sliding(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bundle whose layers see WINDOW tokens, and the checkpoint of its target."""
    import torch
    from tiny_bundles import byte_tokenizer, export_pair, save_checkpoint
    from transformers import MistralConfig, MistralForCausalLM

    root = tmp_path_factory.mktemp("sliding")
    for name, noise in (("target", 0.0), ("draft", 0.15)):
        save_checkpoint(root / name, byte_tokenizer(), spread=0.5)  # for the tokenizer's files
        torch.manual_seed(3)
        config = MistralConfig(
            vocab_size=258,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            sliding_window=WINDOW,
            tie_word_embeddings=False,
            bos_token_id=256,
            eos_token_id=257,
        )
        model = MistralForCausalLM(config)
        model.get_input_embeddings().weight.data.normal_(std=1.0)
        model.lm_head.weight.data.normal_(std=0.5)
        generator = torch.Generator().manual_seed(11)
        for weight in model.parameters():
            weight.data += noise * weight.data.std() * torch.randn(weight.shape, generator=generator)
        model.save_pretrained(root / name)
    bundle = export_pair(root / "bundle", root / "target", root / "draft", linear="f32", rest="f32")
    return bundle, root / "target"


def test_speculation_crosses_a_sliding_window(sliding: tuple[Path, Path]) -> None:
    """Row 71: prompts that end before, at and behind the window's edge, and outputs that run far beyond it."""
    bundle, _ = sliding
    with Engine(bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        for source in sources_of(engine):
            for length in range(WINDOW - 9, WINDOW + 10, 3):
                prompt = [(5 * at + length) % 256 for at in range(length)]
                options = GenerateKeywords(max_new_tokens=40, ignore_eos=True)
                plain = engine.generate(prompt, **(PLAIN | options))
                assert engine.generate(prompt, **(source.options | options)).token_ids == plain.token_ids, source.name


def test_a_sliding_window_is_transformers(sliding: tuple[Path, Path]) -> None:
    """Row 71: and the logits are the model's, on both sides of the edge."""
    import torch
    from transformers import MistralForCausalLM

    bundle, checkpoint = sliding
    ids = [(13 * at + 1) % 256 for at in range(3 * WINDOW)]
    model = MistralForCausalLM.from_pretrained(checkpoint, attn_implementation="eager")
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    with Engine(bundle, threads=1) as engine:
        np.testing.assert_allclose(engine.logits(ids), expected, atol=0.05)
