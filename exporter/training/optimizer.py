"""Which optimizer trains which weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .errors import TrainingOptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.nn import Parameter
    from torch.optim import Optimizer

_BETAS = (0.9, 0.95)
_WEIGHT_DECAY = 0.1  # of matrices; norms have none
_MUON_MAX_ASPECT = 8  # longer matrices are embeddings and output layers: their rows are tokens


def new_optimizers(module: torch.nn.Module, name: str, device: torch.device, *, sharded: bool) -> list[Optimizer]:
    """AdamW for all weights, or, by the name "muon", Muon for the hidden layers' matrices and AdamW for the others.

    Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks") makes a matrix's update
    orthogonal; scaled as AdamW's updates are (Liu et al. 2025, "Muon is scalable for LLM training", section 2.2), both
    go by one learning rate, which the loop sets at every step.

    Raises:
        TrainingOptionError: Muon on sharded weights: it needs whole matrices.
    """
    parameters = list(module.parameters())
    if name == "adamw":
        return [_adamw(parameters, device)]
    if sharded:
        raise TrainingOptionError("optimizer is muon, which needs whole matrices; choose adamw for sharded training")
    matrices = [parameter for parameter in parameters if _is_hidden(parameter)]
    others = [parameter for parameter in parameters if not _is_hidden(parameter)]
    muon = torch.optim.Muon(matrices, lr=0.0, weight_decay=_WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw")
    return [muon, *([_adamw(others, device)] if others else [])]


def _is_hidden(parameter: Parameter) -> bool:
    return parameter.ndim == 2 and max(parameter.shape) <= _MUON_MAX_ASPECT * min(parameter.shape)  # noqa: PLR2004


def _adamw(parameters: Iterable[Parameter], device: torch.device) -> torch.optim.AdamW:
    chosen = list(parameters)
    groups = [
        {"params": [parameter for parameter in chosen if parameter.ndim > 1], "weight_decay": _WEIGHT_DECAY},
        {"params": [parameter for parameter in chosen if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=_BETAS, fused=device.type == "cuda")
