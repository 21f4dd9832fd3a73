from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import pytest
import torch
from tiny_models import FAMILIES, save_model, tiny_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def family_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One checkpoint a family."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("families")
    return {family: save_model(folder / family, tiny_config(family)) for family in FAMILIES}


@pytest.fixture(scope="session")
def load_graph() -> Callable[[Path], ir.Graph]:
    """The graph of an exported model, without its weights."""
    return lambda path: ir.load(path).graph
