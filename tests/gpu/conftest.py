"""What tests on a GPU share. They are deselected by default: ``pytest -m gpu tests/gpu``.

They need numpy and onnx, a build with the CUDA kernels and onnxruntime-gpu; bundles are random, and made in seconds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gpu import random_bundle
from gpu.make_head_bundles import make_head_bundle

from pilotfish import Engine
from pilotfish.bindings import PilotfishError, calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Of the target's embedding: the draft is right about half of the time.
STD = "0.4"
MAX_DRAFT_TOKENS = 15


@pytest.fixture(scope="session", autouse=True)
def needs_gpu() -> None:
    """The tests run where device "cuda" is."""
    try:
        calls.cuda_info(0, measure=False)
    except PilotfishError as error:
        pytest.skip(f"no GPU to test on: {error}")


@pytest.fixture(scope="session")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes the random pair of a name, "shape" or "shape cache", once a session."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            with pytest.MonkeyPatch.context() as patch:
                shape, _, cache = name.partition(" ")
                arguments = [shape, str(folder), "--std", STD, "--cache", cache or "f16"]
                patch.setattr(sys, "argv", ["random_bundle", *arguments])
                random_bundle.main()
            made[name] = folder
        return made[name]

    return make


@pytest.fixture(scope="session")
def head_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The bundle of a kind of head."""
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        folder = os.environ.get("PILOTFISH_HEAD_BUNDLES")
        if folder:
            return Path(folder) / kind
        for package, version in (("torch", "2.13"), ("transformers", "5.20")):
            pytest.importorskip(package, version, "heads are exported; PILOTFISH_HEAD_BUNDLES names no folder of them")
        if kind not in made:
            made[kind] = make_head_bundle(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return make


@pytest.fixture(scope="session")
def tiny(make_bundle: Callable[[str], Path]) -> Path:
    """Int4, two layers."""
    return make_bundle("tiny")


@pytest.fixture(scope="session", params=["tiny", "asym", "f16", "tiny int8", "asym int8"])
def any_engine(request: pytest.FixtureRequest, make_bundle: Callable[[str], Path]) -> Iterator[Engine]:
    """Each random pair on the GPU: int4 and int8; int4_asym with three heads a group; f16; other caches."""
    with Engine(
        make_bundle(request.param), device="cuda", max_draft_tokens=MAX_DRAFT_TOKENS, num_sequences=2
    ) as engine:
        yield engine


@pytest.fixture(scope="session")
def tiny_engine(tiny: Path) -> Iterator[Engine]:
    """The tiny pair on the GPU."""
    with Engine(tiny, device="cuda:0", max_draft_tokens=MAX_DRAFT_TOKENS, num_sequences=2) as engine:
        yield engine
