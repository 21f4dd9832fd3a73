"""What ONNX Runtime's CUDA provider needs is read from the provider itself, loaded, or named with its package."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pilotfish.bindings import Device, InvalidArgumentError, OnnxRuntimeMissingError, library_path
from pilotfish.runtime import cuda_libraries
from pilotfish.runtime.devices import parse_device
from pilotfish.runtime.elf import needed_libraries

CUDA_13 = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcuda.so.1", "libc.so.6")


def test_needed_libraries_are_what_the_linker_was_given(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-xc", "-", "-Wl,--no-as-needed", "-lm", "-o", library], check=True, input=b""
    )
    assert needed_libraries(library) == ("libm.so.6", "libc.so.6")
    assert "libstdc++.so.6" in needed_libraries(library_path())


def test_what_is_no_library_is_said(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no library")
    with pytest.raises(ValueError, match="is no 64-bit little-endian ELF file"):
        needed_libraries(tmp_path / "text")
    with pytest.raises(OSError, match="nothing"):
        needed_libraries(tmp_path / "nothing")


def of_cuda(version: int) -> tuple[str, ...]:
    return tuple(name.replace(".13", f".{version}") for name in CUDA_13)


@pytest.mark.parametrize(
    ("version", "library", "package"),
    [
        (13, "libcublas.so.13", "nvidia-cublas,"),
        (12, "libcublas.so.12", "nvidia-cublas-cu12,"),
        (13, "libcudart.so.13", "nvidia-cuda-runtime,"),
        (12, "libcurand.so.10", "nvidia-curand-cu12,"),
        (13, "libcudnn.so.9", "nvidia-cudnn-cu13,"),
        (12, "libcudnn.so.9", "nvidia-cudnn-cu12,"),
    ],
)
def test_a_missing_library_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, version: int, library: str, package: str
) -> None:
    monkeypatch.setattr(cuda_libraries, "needed_libraries", lambda _: of_cuda(version))
    monkeypatch.setattr(cuda_libraries, "_is_loaded", lambda name: Path(name).name != library)
    with pytest.raises(OnnxRuntimeMissingError) as caught:
        cuda_libraries.load_cuda_libraries(Path("/wheel/libonnxruntime.so.1"))
    assert str(caught.value).startswith(f"{library} cannot be loaded")
    assert f"pip install {package}" in str(caught.value)


def test_libraries_are_loaded_from_pips_folders_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cu13" / "lib"
    folder.mkdir(parents=True)
    wanted = ["libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcudnn.so.9"]
    for name in wanted:
        (folder / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(cuda_libraries.util, "find_spec", lambda _: spec)
    monkeypatch.setattr(cuda_libraries, "needed_libraries", lambda _: CUDA_13)
    loaded: list[str] = []

    def load(name: str) -> bool:
        loaded.append(name)
        return "/" in name

    monkeypatch.setattr(cuda_libraries, "_is_loaded", load)
    cuda_libraries.load_cuda_libraries(Path("/wheel/libonnxruntime.so.1"))
    assert [name for name in loaded if "/" in name] == [str(folder / name) for name in wanted]


def test_devices_have_names() -> None:
    assert parse_device("cpu") == (Device.CPU, 0)
    assert parse_device("cuda") == (Device.CUDA, 0)
    assert parse_device("cuda:3") == (Device.CUDA, 3)
    for name in ("tpu", "cuda:", "cuda:-1", "CUDA", "cpu:1", "cuda:99999", ""):
        with pytest.raises(InvalidArgumentError, match="must be 'cpu', 'cuda' or"):
            parse_device(name)
