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
