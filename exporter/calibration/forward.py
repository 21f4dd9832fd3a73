"""One pass of a model over the calibration text, which rounds each matrix when its inputs are there.

The text goes through side by side with the checkpoint's matrices, with those that were rounded so far, and, where
rounding may not read it, with the nearest values. Memory holds what is between two modules, one matrix and its Hessian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from pilotfish.exporter.errors import CheckpointError, OptionError, UnsupportedModelError
from pilotfish.exporter.finite import read_finite
from pilotfish.exporter.logits import compare
from pilotfish.exporter.quantise import quantise
from pilotfish.exporter.reference_model import on_demand
from pilotfish.exporter.strips import row_spans
from pilotfish.exporter.trace import first_names

from .inputs import Inputs
from .rounding import round_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from transformers import PretrainedConfig, PreTrainedModel

    from pilotfish.exporter.progress import Progress
    from pilotfish.exporter.sources import WeightSource

    from .blocks import CalibratedBlocks
    from .text import CalibrationText

Array = np.ndarray[Any, np.dtype[Any]]
_LOGIT_ROWS = 128  # at a time: those of a large vocabulary take more memory than a layer


@dataclass(frozen=True, slots=True)
class HeldText:
    """KL from the checkpoint's own output layer, in nats a token, on the windows that no rounding has read."""

    calibrated: float
    nearest: float


@dataclass(frozen=True, slots=True)
class _Streams:
    """How a batch is made up: [all windows, exact], [all windows, rounded], [held windows, nearest]."""

    num_windows: int
    num_held: int
    num_tokens: int  # of a window

    def batch(self, windows: torch.Tensor) -> torch.Tensor:
        """Of windows [num_windows, num_tokens] whose last ones are held."""
        return torch.cat([windows, windows, windows[len(windows) - self.num_held :]])

    def split(self, name: str, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The three, of what goes into a module: its first axis is the batch's, or that of all tokens."""
        in_all = 2 * self.num_windows + self.num_held
        each, rest = divmod(len(inputs), in_all)
        if rest:
            shape = "x".join(map(str, inputs.shape))
            raise OptionError(f"{name} reads {shape} values of {in_all} windows, which calibration does not know")
        first, second = each * self.num_windows, 2 * each * self.num_windows
        return inputs[:first], inputs[first:second], inputs[second:]


def calibrate(
    config: PretrainedConfig,
    formats: Mapping[str, str],
    source: WeightSource,
    text: CalibrationText,
    *,
    blocks: CalibratedBlocks,
    progress: Progress,
) -> HeldText:
    """Rounds these parameters into `blocks`, which has none of those that are best rounded to the nearest values.

    Raises:
        CheckpointError: a parameter that is not finite, or that makes values that are not.
        OptionError: a module whose inputs cannot be told apart.
        UnsupportedModelError: a model without an output layer.
    """
    streams = _Streams(len(text.windows), text.num_held, text.windows.shape[1])
    rounder = _Rounder(formats, source, streams, blocks, progress)
    read = partial(read_finite, source)
    model = on_demand(config, read, read)
    with torch.no_grad():
        head = rounder.attach(model)
        batch = streams.batch(torch.from_numpy(text.windows))
        hidden = model.base_model(input_ids=batch, use_cache=False).last_hidden_state
        return head(hidden)


class _Rounder:
    """Rounds a matrix the first time that its module runs."""

    def __init__(
        self,
        formats: Mapping[str, str],
        source: WeightSource,
        streams: _Streams,
        blocks: CalibratedBlocks,
        progress: Progress,
    ) -> None:
        self._formats, self._source, self._streams = formats, source, streams
        self._blocks, self._progress = blocks, progress
        self._seen: set[str] = set()
        self._last: tuple[torch.Tensor, Inputs] | None = None  # q, k and v read the same

    def attach(self, model: PreTrainedModel) -> Callable[[torch.Tensor], HeldText]:
        """Lets modules round themselves as they run; gives what does the same for the output layer, which does not."""
        names = first_names(model)
        output_layer: Callable[[], torch.nn.Module | None] = model.get_output_embeddings
        head = output_layer()
        if not isinstance(head, torch.nn.Linear):
            raise UnsupportedModelError(f"{type(model).__name__} has no output layer to calibrate for; leave it out")
        head_name = ""
        for module_name, module in model.named_modules():
            name = names.get(f"{module_name}.weight", "")
            if module is head:
                head_name = name
            elif name in self._formats and isinstance(module, (torch.nn.Linear, Conv1D)):
                module.forward = partial(self._run, module, name)  # type: ignore[method-assign]  # of this one
        return partial(self._finish, head, head_name, model.config)

    def _run(self, module: torch.nn.Linear | Conv1D, name: str, inputs: torch.Tensor) -> torch.Tensor:
        """What the module computes, in place of its forward."""
        matrix = module.weight.T if isinstance(module, Conv1D) else module.weight
        weights = (matrix, *self._rounded(name, inputs, matrix.numpy()))
        pairs = zip(self._streams.split(name, inputs), weights, strict=True)
        return torch.cat([functional.linear(part, weight, module.bias) for part, weight in pairs])

    def _rounded(self, name: str, inputs: torch.Tensor, rows: Array) -> tuple[torch.Tensor, torch.Tensor]:
        """The matrix that a parameter has become, and that of the nearest values."""
        kind = self._formats[name]
        if name in self._seen:  # a module that runs again
            nearest = quantise(rows, kind)
            rounded = self._blocks.get(name, kind) or nearest
        else:
            found = round_rows(rows, self._inputs(name, inputs), kind)
            rounded, nearest = found.quantised, found.nearest
            if found.is_calibrated:
                self._blocks.add(name, kind, rounded)
            self._seen.add(name)
            self._progress.advance()
        return torch.from_numpy(rounded.dequantise()), torch.from_numpy(nearest.dequantise())

    def _inputs(self, name: str, inputs: torch.Tensor) -> Inputs:
        if self._last is None or self._last[0] is not inputs:
            self._last = None  # not two at a time
            exact, own, _ = (part.reshape(-1, part.shape[-1]) for part in self._streams.split(name, inputs))
            self._last = (inputs, Inputs(own, exact, len(own) - self._streams.num_held * self._streams.num_tokens))
        found = self._last[1]
        if not bool(torch.isfinite(found.hessian.diagonal()).all()):
            raise CheckpointError(f"what goes into {name} is not finite on the calibration text")
        return found

    def _finish(self, head: torch.nn.Linear, name: str, config: PretrainedConfig, hidden: torch.Tensor) -> HeldText:
        """Rounds the output layer, if that is to be, and compares what comes out of it."""
        matrix = read_finite(self._source, name)
        weights = [torch.from_numpy(matrix)] * 3  # exact, rounded, nearest
        if name in self._formats:
            weights[1:] = self._rounded(name, hidden, matrix)
        self._last = None
        self._progress.advance(len(self._formats) - len(self._seen))  # of no linear layer: they keep the nearest values
        streams = [part[-self._streams.num_held :].flatten(0, 1) for part in self._streams.split(name, hidden)]
        sums = np.zeros(2)
        for start, end in row_spans(len(streams[0]), _LOGIT_ROWS):
            exact, *others = (
                _scaled(functional.linear(rows[start:end], weight, head.bias), config).numpy()
                for rows, weight in zip(streams, weights, strict=True)
            )
            sums += [(end - start) * compare(exact, found)[2] for found in others]
        calibrated, nearest = sums / len(streams[0])
        return HeldText(float(calibrated), float(nearest))


def _scaled(logits: torch.Tensor, config: PretrainedConfig) -> torch.Tensor:
    """What a model makes of what its output layer gives."""
    scaling = getattr(config, "logits_scaling", None) or 1.0
    factor = scaling if config.model_type == "hyperclovax" else 1 / scaling
    logits = logits * (factor * (getattr(config, "logit_scale", None) or 1.0))
    cap = getattr(config, "final_logit_softcapping", None)
    return cap * torch.tanh(logits / cap) if cap else logits
