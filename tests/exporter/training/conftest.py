"""A tiny target, text in its words, and one finished training run that several tests look at."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from tiny_training import HEADS, TEXT_ONLY, WORDS, save_target, tiny_options

from pilotfish.exporter.training import TrainOptions, TrainResult, train
from pilotfish.exporter.training.target import Target, load_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tiny_training import TrainedHead


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny matrices are slower on several threads, far slower on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fresh_processes() -> Iterator[None]:
    """Accelerate keeps its processes in class attributes; every test begins without them."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()
    GradientState._reset_state()


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 12,000 tokens."""
    chooser = random.Random(3)  # text, not a secret
    lines = [" ".join(chooser.choices(WORDS, k=12)) for _ in range(1000)]
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def make_options(target_folder: Path, text_file: Path, tmp_path: Path) -> Callable[..., TrainOptions]:
    return lambda **changes: tiny_options(
        **{"target": target_folder, "data": text_file, "out": tmp_path / "draft", **changes}
    )


@pytest.fixture(scope="session")
def prompts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [
        {"category": category, "prompt": f"w1 w2 w{number}"} for number in range(3) for category in ("chat", "code")
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


@pytest.fixture(scope="session")
def finished(
    target_folder: Path, text_file: Path, prompts_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> TrainResult:
    """One whole run that several tests look at."""
    out = tmp_path_factory.mktemp("run") / "draft"
    options = tiny_options(
        target=target_folder, data=text_file, out=out, evaluation_prompts=prompts_file, evaluation_tokens=24
    )
    return train(options)


@pytest.fixture(scope="session")
def trained(target_folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainedHead:
    """One run of each of HEADS, made when a test first asks for it."""
    done: dict[str, TrainResult] = {}

    def run(name: str) -> TrainResult:
        if name not in done:
            out = tmp_path_factory.mktemp("head") / name
            options = tiny_options(target=target_folder, data=text_file, out=out, shape=HEADS[name], **TEXT_ONLY)
            with torch.enable_grad():  # some of the tests have none
                done[name] = train(options)
        return done[name]

    return run


@pytest.fixture
def target(target_folder: Path) -> Target:
    return load_target(str(target_folder), None, torch.float32, torch.device("cpu"))
