"""Bundles as folders: all or nothing, checked with precise errors."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tiny_models import save_model, tiny_config
from tokenizers import Tokenizer

from pilotfish.exporter import (
    ExportOptions,
    ModelFormats,
    NoProgress,
    check_bundle,
    export,
    model_export,
    read_manifest,
)
from pilotfish.exporter.errors import (
    BundleCorruptError,
    BundleMissingError,
    BundleVersionError,
    ExportError,
    OutputExistsError,
    ParityError,
)
from pilotfish.exporter.rotary_tables import rotary_tables
from pilotfish.exporter.trace import trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUICK = ExportOptions(parity=False)


@pytest.fixture(scope="module")
def bundle(family_checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "pair"
    llama = str(family_checkpoints["llama"])
    return export(llama, out, draft=llama, options=QUICK).folder


@pytest.fixture
def copied(bundle: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bundle, tmp_path / "copy")


def change_manifest(folder: Path, change: Callable[[dict], object]) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_a_written_bundle_checks_and_reads_back(bundle: Path) -> None:
    manifest = check_bundle(bundle)
    assert manifest == read_manifest(bundle)
    assert set(manifest.models) == {"target", "draft"}
    assert manifest.to_json() == (bundle / "manifest.json").read_text(encoding="utf-8")
    assert manifest.models["draft"].formats.lm_head == "int4"
    assert sorted(path.name for path in bundle.iterdir()) == sorted(
        ["manifest.json", "tokenizer.json", "target.onnx", "target.bin", "draft.onnx", "draft.bin"]
    )


def test_export_is_deterministic(
    bundle: Path, family_checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_export, "trace", trace)  # once more, not the session's
    llama = str(family_checkpoints["llama"])
    again = export(llama, tmp_path / "again", draft=llama, options=QUICK).manifest
    assert again == read_manifest(bundle)


@pytest.mark.parametrize("name", ["target.onnx", "target.bin", "draft.onnx", "draft.bin", "tokenizer.json"])
def test_a_missing_file_is_named(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(BundleMissingError, match=name):
        check_bundle(copied)


def test_a_truncated_file_shows_both_sizes(copied: Path) -> None:
    data = (copied / "target.bin").read_bytes()
    (copied / "target.bin").write_bytes(data[:-100])
    with pytest.raises(BundleCorruptError, match=rf"target\.bin has {len(data) - 100} bytes, expected {len(data)}"):
        check_bundle(copied)


def test_a_changed_byte_shows_both_hashes(copied: Path) -> None:
    data = bytearray((copied / "draft.bin").read_bytes())
    data[1000] ^= 1
    (copied / "draft.bin").write_bytes(data)
    with pytest.raises(BundleCorruptError, match=r"draft\.bin has sha256 \w{64}, expected \w{64}"):
        check_bundle(copied)


def test_another_version_is_refused(copied: Path) -> None:
    change_manifest(copied, lambda data: data.update(format_version=2))
    with pytest.raises(BundleVersionError, match="version 2, this pilotfish reads 1"):
        check_bundle(copied)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(format="other"), "format 'other'"),
        (lambda data: data["models"].pop("target"), "models"),
        (lambda data: data["models"]["target"].pop("num_heads"), r"models\.target lacks num_heads"),
        (lambda data: data["models"]["target"].update(extra=1), r"models\.target has unknown extra"),
        (lambda data: data["models"]["target"].update(num_heads="4"), r"num_heads is '4', expected int"),
        (lambda data: data["tokenizer"].update(eos_ids=7), r"eos_ids is 7"),
        (lambda data: data["models"]["target"]["tensors"][0].update(offset=1 << 40), "ends at byte"),
        (lambda data: data["models"]["target"]["graph"].update(file="../target.onnx"), "is not the name of a file in"),
    ],
)
def test_a_wrong_manifest_names_the_field(copied: Path, change: Callable[[dict], object], message: str) -> None:
    change_manifest(copied, change)
    with pytest.raises(BundleCorruptError, match=message):
        check_bundle(copied)


def test_a_manifest_that_is_not_json(copied: Path) -> None:
    (copied / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(BundleCorruptError, match="not JSON"):
        read_manifest(copied)


def test_a_folder_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(BundleMissingError, match="is not a bundle"):
        read_manifest(tmp_path)


class _Stop(NoProgress):
    """Fails when a stage begins."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def stage(self, name: str, total: int) -> None:  # noqa: ARG002 - the protocol's signature
        if name == self._stage:
            raise RuntimeError(name)


@pytest.mark.parametrize("stage", ["trace target", "quantise and pack target", "write manifest"])
def test_a_failed_export_leaves_nothing(family_checkpoints: dict[str, Path], tmp_path: Path, stage: str) -> None:
    with pytest.raises(RuntimeError, match=stage):
        export(str(family_checkpoints["llama"]), tmp_path / "out", options=QUICK, progress=_Stop(stage))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_overwrite_keeps_the_old_bundle(copied: Path, family_checkpoints: dict[str, Path]) -> None:
    options = ExportOptions(parity=False, overwrite=True)
    with pytest.raises(RuntimeError, match="write manifest"):
        export(str(family_checkpoints["qwen2"]), copied, options=options, progress=_Stop("write manifest"))
    assert check_bundle(copied).models["target"].architecture == "llama"


def test_overwriting_is_asked_for(copied: Path, family_checkpoints: dict[str, Path]) -> None:
    qwen = str(family_checkpoints["qwen2"])
    with pytest.raises(OutputExistsError, match="exists"):
        export(qwen, copied, options=QUICK)
    export(qwen, copied, options=ExportOptions(parity=False, overwrite=True))
    manifest = check_bundle(copied)
    assert manifest.models["target"].architecture == "qwen2"
    assert set(manifest.models) == {"target"}


def test_a_folder_that_is_no_bundle_is_never_overwritten(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(OutputExistsError, match="not a bundle"):
        export(str(family_checkpoints["llama"]), tmp_path, options=ExportOptions(parity=False, overwrite=True))
    assert (tmp_path / "thesis.txt").exists()


def test_parity_failure_leaves_nothing(
    family_checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mirrored(*arguments: object) -> dict:
        tables = rotary_tables(*arguments)
        return tables | {"sin": -tables["sin"]}

    monkeypatch.setattr(model_export, "rotary_tables", mirrored)
    options = ExportOptions(target=ModelFormats("f32", "f32", "f32"), parity_tokens=32)
    with pytest.raises(ParityError, match=r"target differs .* the same integers: KL [\d.e+-]+ nats .* limit is 0\.001"):
        export(str(family_checkpoints["llama"]), tmp_path / "out", options=options)
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_every_step(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    class Record(NoProgress):
        def __init__(self) -> None:
            self.stages: list[list] = []
            self.finished = False

        def stage(self, name: str, total: int) -> None:
            self.stages.append([name, total, 0])

        def advance(self, steps: int = 1) -> None:
            self.stages[-1][2] += steps

        def finish(self) -> None:
            self.finished = True

    record = Record()
    options = ExportOptions(parity_tokens=16)
    export(str(family_checkpoints["qwen3"]), tmp_path / "out", options=options, progress=record)
    assert record.finished
    assert [name for name, _, _ in record.stages] == [
        "load",
        "trace target",
        "fuse target",
        "quantise and pack target",
        "compare target with torch",
        "write manifest",
    ]
    assert all(total == done for _, total, done in record.stages)


def test_a_trimmed_draft_head(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    options = ExportOptions(draft=ModelFormats("f32", "f32", "f32"), draft_vocab=100, parity_tokens=32)
    tied = str(family_checkpoints["llama_tied"])
    result = export(tied, tmp_path / "out", draft=tied, options=options)
    draft = result.manifest.models["draft"]
    assert (draft.vocab_size, draft.num_logits) == (258, 100)
    assert result.models[1].parity.kl < 1e-4
    with pytest.raises(ExportError, match="draft_vocab is 300"):
        export(tied, tmp_path / "other", draft=tied, options=ExportOptions(parity=False, draft_vocab=300))


def test_max_positions_limits_the_tables(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", tiny_config("llama"))
    out = export(str(checkpoint), tmp_path / "out", options=ExportOptions(parity=False, max_positions=40))
    model = out.manifest.models["target"]
    assert model.max_positions == 40
    assert [tensor.shape for tensor in model.tensors if tensor.name in ("cos", "sin")] == [(40, 8), (40, 8)]
    with pytest.raises(ExportError, match="max_positions is 1000; model was made for at most 256"):
        export(str(checkpoint), tmp_path / "other", options=ExportOptions(parity=False, max_positions=1000))


def test_a_head_of_the_most_frequent_ids(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("zzzz yyy xx w\n" * 50_000, encoding="utf-8")
    options = ExportOptions(
        draft=ModelFormats("f32", "f32", "f32"), draft_vocab=8, draft_vocab_text=text, parity_tokens=32
    )
    tied = str(family_checkpoints["llama_tied"])
    result = export(tied, tmp_path / "out", draft=tied, options=options)
    draft = check_bundle(tmp_path / "out").models["draft"]
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    expected = {*tokenizer.encode("wxyz \n").ids, *result.manifest.tokenizer.eos_ids}
    assert (draft.num_logits, len(draft.logit_ids), draft.logit_ids) == (8, 8, tuple(sorted(draft.logit_ids)))
    assert set(draft.logit_ids) == expected | {min(set(range(258)) - expected)}
    assert result.models[1].parity.kl < 1e-4
    assert result.models[1].logit_coverage == 1.0
    assert len((tmp_path / "out" / "manifest.json").read_text().splitlines()) < 400


def test_a_prefix_needs_no_map_and_old_manifests_have_none(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    llama = str(family_checkpoints["llama"])
    export(llama, tmp_path / "out", draft=llama, options=ExportOptions(parity=False, draft_vocab=100))
    assert read_manifest(tmp_path / "out").models["draft"].logit_ids is None
    change_manifest(tmp_path / "out", lambda data: data["models"]["draft"].pop("logit_ids"))
    assert read_manifest(tmp_path / "out").models["draft"].num_logits == 100


def test_a_text_without_tokens_is_refused(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    llama = str(family_checkpoints["llama"])
    for name, message in (("empty.txt", "has no text"), ("missing.txt", "cannot be read")):
        if name.startswith("empty"):
            (tmp_path / name).touch()
        given = {"draft_vocab": 8, "draft_vocab_text": tmp_path / name}
        with pytest.raises(ExportError, match=message):
            export(llama, tmp_path / "out", draft=llama, options=ExportOptions(parity=False, **given))
    options = ExportOptions(draft_vocab_text=tmp_path / "empty.txt")
    with pytest.raises(ExportError, match=r"empty.txt, but no draft or head is exported"):
        export(llama, tmp_path / "out", options=options)
