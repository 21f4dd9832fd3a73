"""Doctor's rows about GPUs: what there is, and why what is missing is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.bindings import CudaInfo, OnnxRuntimeMissingError, UnsupportedError, calls
from pilotfish.runtime import gpu
from pilotfish.runtime.machine import describe_machine

H200 = CudaInfo(
    num_devices=2,
    compute_capability=90,
    num_multiprocessors=132,
    driver_version=13000,
    build_version=12080,
    total_bytes=140 << 30,
    free_bytes=70 << 30,
    read_bytes_per_second=4.2e12,
    name="NVIDIA H200",
    architectures="80, 90",
    has_provider_kernels=False,
)

ORIN = 87  # a compute capability that ONNX Runtime's wheels have no code for


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> dict[int, CudaInfo | UnsupportedError]:
    """The GPUs that the driver seems to have, by index."""
    found: dict[int, CudaInfo | UnsupportedError] = {0: H200, 1: replace(H200, compute_capability=86, name="A10")}

    def cuda_info(index: int, *, measure: bool, ort_library: str | None = None) -> CudaInfo:
        card = found[index]
        if isinstance(card, UnsupportedError):
            raise card
        card = replace(card, has_provider_kernels=ort_library is not None and card.compute_capability != ORIN)
        return card if measure else replace(card, read_bytes_per_second=0.0)

    monkeypatch.setattr(calls, "cuda_info", cuda_info)
    monkeypatch.setattr(calls, "ort_version", lambda _: "1.31.1")
    monkeypatch.setattr(gpu, "ort_for", lambda _: Path("/wheel/libonnxruntime.so"))
    return found


@pytest.mark.usefixtures("cards")
def test_every_gpu_is_described() -> None:
    rows = gpu.describe_gpus()
    assert rows["cuda:0"] == "NVIDIA H200, compute capability 9.0, 132 multiprocessors"
    assert rows["cuda:0 memory"] == "70.0 GiB free of 140.0 GiB"
    assert rows["cuda:0 bandwidth"].startswith("4200 GB/s")
    assert rows["cuda:0 driver"] == "runs CUDA up to 13.0"
    assert rows["cuda:0 kernels"] == "of CUDA 12.8 for 80, 90; early launch and bulk copies"
    assert rows["cuda:1"].startswith("A10, compute capability 8.6")
    assert rows["cuda:1 kernels"].endswith("asynchronous copies")
    assert rows["CUDA provider"] == "1.31.1 /wheel/libonnxruntime.so; its kernels run on cuda:0"


def test_a_card_that_the_provider_has_no_kernels_for(cards: dict[int, CudaInfo | UnsupportedError]) -> None:
    cards[0] = replace(H200, compute_capability=ORIN, name="Orin", num_devices=1)
    found = gpu.describe_gpus()["CUDA provider"]
    assert found.startswith("1.31.1 /wheel/libonnxruntime.so; it has no kernels for cuda:0 (8.7), which older")
    assert found.endswith("export older bundles again")


def test_a_gpu_that_cannot_be_used_does_not_hide_the_other(cards: dict[int, CudaInfo | UnsupportedError]) -> None:
    cards[1] = UnsupportedError("no kernels for cuda:1")
    rows = gpu.describe_gpus()
    assert rows["cuda:0"].startswith("NVIDIA H200")
    assert rows["cuda:1"] == "cannot be used: no kernels for cuda:1"


def test_no_gpu_and_no_provider_say_why(
    cards: dict[int, CudaInfo | UnsupportedError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> Path:
        raise OnnxRuntimeMissingError("libcublas.so.13 cannot be loaded")

    cards[0] = UnsupportedError("there is no NVIDIA driver")
    monkeypatch.setattr(gpu, "ort_for", missing)
    rows = gpu.describe_gpus()
    assert rows == {
        "GPU": "none: there is no NVIDIA driver",
        "CUDA provider": "cannot be used: libcublas.so.13 cannot be loaded",
    }


@pytest.mark.usefixtures("cards")
def test_a_measurement_names_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilotfish.runtime.machine.ort_library", lambda _: Path("/wheel/libonnxruntime.so"))
    assert describe_machine("cuda:1")["gpu"] == "A10, driver for CUDA 13.0"
    assert "gpu" not in describe_machine("cpu")
