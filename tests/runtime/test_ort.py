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


def test_a_missing_cuda_library_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "_is_loaded", lambda name: "cudnn" not in name)
    with pytest.raises(OnnxRuntimeMissingError, match=r"libcudnn\.so\.9 .*pip install nvidia-cudnn-cu13"):
        ort.load_cuda_libraries()


def test_cuda_libraries_are_loaded_from_pips_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cu13" / "lib"
    folder.mkdir(parents=True)
    wanted = [names[0] for names, _ in ort._CUDA_LIBRARIES]
    for name in wanted:
        (folder / name).touch()
    monkeypatch.setattr(ort.util, "find_spec", lambda _: SimpleNamespace(submodule_search_locations=[str(tmp_path)]))
    loaded: list[str] = []

    def load(name: str) -> bool:
        loaded.append(name)
        return "/" in name

    monkeypatch.setattr(ort, "_is_loaded", load)
    ort.load_cuda_libraries()
    assert [name for name in loaded if "/" in name] == [str(folder / name) for name in wanted]
