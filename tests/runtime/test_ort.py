"""ONNX Runtime's library is found without importing its module, or its absence explained."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

import pytest

from pilotfish.bindings import OnnxRuntimeMissingError, calls
from pilotfish.runtime import ort

if TYPE_CHECKING:
    from pathlib import Path


def missing(name: str) -> NoReturn:
    raise metadata.PackageNotFoundError(name)


def test_the_installed_library_is_found_and_has_the_wheels_version() -> None:
    library = ort.ort_library("cpu")
    assert library.name.startswith("libonnxruntime.so.")
    wheels = [dist.version for dist in metadata.distributions() if dist.name in ("onnxruntime", "onnxruntime-gpu")]
    assert calls.ort_version(str(library)) in wheels


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_a_wheel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(OnnxRuntimeMissingError, match=rf"pip install 'pilotfish\[{device}\]'"):
        ort.ort_library(device)


def test_a_wheel_without_the_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(ort.util, "find_spec", lambda _: spec)
    with pytest.raises(OnnxRuntimeMissingError, match=r"has no libonnxruntime\.so"):
        ort.ort_library("cpu")


def test_the_cpu_wheel_has_no_cuda_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        return "1.32.0" if name == "onnxruntime" else missing(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(OnnxRuntimeMissingError, match=r"onnxruntime 1\.32\.0 .* no CUDA provider: pip uninstall"):
        ort.ort_library("cuda")


@pytest.fixture
def both_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder that onnxruntime 1.32.0 and onnxruntime-gpu 1.31.1 share."""
    folder = tmp_path / "capi"
    folder.mkdir()
    for name in ("libonnxruntime.so.1.31.1", "libonnxruntime.so.1.32.0", ort.CUDA_PROVIDER):
        (folder / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(ort.util, "find_spec", lambda _: spec)
    monkeypatch.setattr(metadata, "version", {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.1"}.__getitem__)
    return folder


def test_each_device_gets_its_wheels_library(both_wheels: Path) -> None:
    assert ort.ort_library("cpu") == both_wheels / "libonnxruntime.so.1.32.0"
    assert ort.ort_library("cuda") == both_wheels / "libonnxruntime.so.1.31.1"


def test_a_provider_that_another_wheel_took_away(both_wheels: Path) -> None:
    (both_wheels / ort.CUDA_PROVIDER).unlink()
    with pytest.raises(OnnxRuntimeMissingError, match="pip uninstall onnxruntime onnxruntime-gpu"):
        ort.ort_library("cuda")
