"""Which matrices get more bits: those where a bit takes most away of the error of their outputs on a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.pytorch_utils import Conv1D

from pilotfish.exporter.contract import BLOCK_COLUMNS, GROUP_BYTES, GROUP_COLUMNS, TILE_ROWS
from pilotfish.exporter.errors import OptionError
from pilotfish.exporter.quantise import quantise
from pilotfish.exporter.reference_model import on_demand
from pilotfish.exporter.shards import PLAIN_TYPES
from pilotfish.exporter.trace import first_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from transformers import PretrainedConfig

    from pilotfish.exporter.passes import PackedWeight, Plan
    from pilotfish.exporter.progress import Progress
    from pilotfish.exporter.sources import WeightSource

    from .text import CalibrationText

Array = np.ndarray[Any, np.dtype[Any]]
_CHOICES = ("int4", "int4_asym", "int8")  # by their bits
_SCALE_BITS = 16 / BLOCK_COLUMNS  # which every one of them has
_NUM_TOKENS = 1 << 12  # of the text at most: mean errors need fewer tokens than Hessians


def bits_of(format_name: str) -> float:
    """Bits of a weight beside its block's scale: 4 of int4, 4.5 of int4_asym, which has an offset, 8 of int8."""
    return 8 * GROUP_BYTES[format_name] / (TILE_ROWS * GROUP_COLUMNS) - _SCALE_BITS


@dataclass(frozen=True, slots=True)
class Mixture:
    """Formats of the linear layers' matrices."""

    formats: Mapping[tuple[str, ...], str]  # by the parameters that make up a matrix
    bits: float  # on average, of all matrices of linear layers
    text: str
    num_tokens: int

    def reason(self) -> str:
        """What the summary says about the formats."""
        return f"{self.bits:.3f} bits a weight, by errors of outputs on {self.num_tokens} tokens of {self.text}"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to store a matrix."""

    format_name: str
    bits: float  # of all its weights
    error: float


def choose_mixture(
    config: PretrainedConfig,
    plan: Plan,
    source: WeightSource,
    text: CalibrationText,
    *,
    bits: float,
    progress: Progress,
) -> Mixture:
    """The formats that lose least among those that take at most so many bits a weight on average.

    Matrices that the checkpoint has in blocks stay as the plan has them, and count.

    Raises:
        OptionError: an average that these matrices cannot have.
    """
    linear = [weight for weight in plan.weights.values() if weight.part == "linear"]
    free = [weight for weight in linear if _is_free(weight, source)]
    sizes = {weight.name: weight.out_features * weight.in_features for weight in linear}
    total = sum(sizes.values())
    fixed = sum(bits_of(weight.format) * sizes[weight.name] for weight in linear if weight not in free)
    least, most = (
        (fixed + sum(bits_of(name) * sizes[weight.name] for weight in free)) / total
        for name in (_CHOICES[0], _CHOICES[-1])
    )
    if not least <= bits <= most:
        kept = (
            "" if len(free) == len(linear) else f", as {len(linear) - len(free)} of them keep the checkpoint's blocks"
        )
        raise OptionError(f"bits is {bits:g}; the linear layers can have {least:.4g}..{most:.4g} bits a weight{kept}")
    text = text.at_most(_NUM_TOKENS)
    errors = _errors(config, free, source, text, progress)
    options = {
        weight.sources: [
            Option(name, bits_of(name) * sizes[weight.name], sum(errors[part, name] for part in weight.sources))
            for name in _CHOICES
        ]
        for weight in free
    }
    chosen = spend(options, bits * total - fixed)
    found = (fixed + sum(option.bits for option in chosen.values())) / total
    formats = {sources: option.format_name for sources, option in chosen.items()}
    # Some are still alone when their formats are asked for, and become one matrix only if these are alike.
    alone = {(source,): name for sources, name in formats.items() for source in sources}
    return Mixture(alone | formats, found, text.name, text.num_tokens)


def spend(options: Mapping[tuple[str, ...], Sequence[Option]], budget: float) -> dict[tuple[str, ...], Option]:
    """One option for each matrix, by the gain of error for each bit, within so many bits in all.

    The options of a matrix ascend in bits. A step that does not fit is passed over for smaller ones.
    """
    chosen = {key: of_matrix[0] for key, of_matrix in options.items()}
    left = budget - sum(option.bits for option in chosen.values())
    steps = [(key, step) for key, of_matrix in options.items() for step in _hull(of_matrix)]
    steps.sort(key=lambda item: -item[1][0])  # stable: the steps of a matrix stay in their order
    closed: set[tuple[str, ...]] = set()
    for key, (_, option) in steps:
        cost = option.bits - chosen[key].bits
        if key in closed or cost > left:
            closed.add(key)
            continue
        chosen[key], left = option, left - cost
    return chosen


def _hull(options: Sequence[Option]) -> list[tuple[float, Option]]:
    """From the first option on, each next one with the steepest fall of error a bit, and that fall."""
    steps: list[tuple[float, Option]] = []
    at = options[0]
    while better := [item for item in options if item.bits > at.bits and item.error < at.error]:
        gains = [(at.error - item.error) / (item.bits - at.bits) for item in better]
        index = int(np.argmax(gains))
        at = better[index]
        steps.append((gains[index], at))
    return steps


def _is_free(weight: PackedWeight, source: WeightSource) -> bool:
    """Whether its format can be chosen: all of its parts are plain numbers."""
    types = {source.stored_type(name) for name in weight.sources}
    return weight.in_features % BLOCK_COLUMNS == 0 and types <= PLAIN_TYPES


def _errors(
    config: PretrainedConfig,
    weights: Sequence[PackedWeight],
    source: WeightSource,
    text: CalibrationText,
    progress: Progress,
) -> dict[tuple[str, str], float]:
    """For each parameter and format the mean squared error of its output, relative to the output's mean square.

    Errors of single weights are taken to be independent, so that the squares of the inputs are all that is needed.
    """
    wanted = {name for weight in weights for name in weight.sources}
    errors: dict[tuple[str, str], float] = {}
    progress.stage("measure sensitivity", len(wanted))

    def hook(name: str) -> Callable[[torch.nn.Linear | Conv1D, tuple[Any, ...], torch.Tensor], None]:
        def measure(module: torch.nn.Linear | Conv1D, arguments: tuple[Any, ...], output: torch.Tensor) -> None:
            if (name, _CHOICES[0]) not in errors:
                errors.update({(name, kind): error for kind, error in _matrix_errors(module, arguments[0], output)})
                progress.advance()

        return measure

    model = on_demand(config, source.read, source.read)
    names = first_names(model)
    for module_name, module in model.named_modules():
        name = names.get(f"{module_name}.weight")
        if name in wanted and isinstance(module, (torch.nn.Linear, Conv1D)):
            module.register_forward_hook(hook(name), prepend=True)  # before the weight is dropped
    with torch.no_grad():
        model.base_model(input_ids=torch.from_numpy(text.windows), use_cache=False)
    return {(name, kind): errors.get((name, kind), math.inf) for name in wanted for kind in _CHOICES}


def _matrix_errors(
    module: torch.nn.Linear | Conv1D, inputs: torch.Tensor, output: torch.Tensor
) -> list[tuple[str, float]]:
    matrix = module.weight.detach()
    rows = np.ascontiguousarray((matrix.T if isinstance(module, Conv1D) else matrix).numpy())
    energy = inputs.reshape(-1, inputs.shape[-1]).square().mean(0).numpy()
    signal = output if module.bias is None else output - module.bias
    norm = max(float(signal.square().mean()) * len(rows), np.finfo(np.float32).tiny)
    return [
        (kind, float(np.square(rows - quantise(rows, kind).dequantise()).sum(0) @ energy) / norm) for kind in _CHOICES
    ]
