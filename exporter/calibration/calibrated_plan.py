"""Which matrices of a plan a text rounds, and what that has done to the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.exporter.contract import BLOCK_COLUMNS
from pilotfish.exporter.errors import OptionError
from pilotfish.exporter.formats import FOUR_BIT, keeps
from pilotfish.exporter.reference_model import attention_for_reference

from .forward import HeldText, calibrate
from .text import LEAST_TOKENS

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from pilotfish.exporter.passes import Plan
    from pilotfish.exporter.progress import Progress
    from pilotfish.exporter.sources import WeightSource

    from .blocks import CalibratedBlocks
    from .text import CalibrationText

_MOST_VALUES = 1 << 26  # of all tokens between two modules, where the model is widest: 7168 tokens of a 1.5B


@dataclass(frozen=True, slots=True)
class Calibration:
    """What calibrated rounding has done to a model."""

    text: str
    num_tokens: int
    num_matrices: int  # that were rounded so; none where the text shows no gain
    num_nearest: int  # of 4 bits that have the nearest values
    num_kept: int  # of 4 bits whose integers are the checkpoint's
    held: HeldText


def matrices_to_round(plan: Plan, source: WeightSource) -> tuple[dict[str, str], int]:
    """The 4-bit format of each parameter that is to be rounded, and how many keep the checkpoint's integers.

    An embedding is looked up, not multiplied with, so that its rounding is the nearest, also where it is the output
    layer too.
    """
    formats: dict[str, str] = {}
    num_kept = 0
    for weight in plan.weights.values():
        if weight.format not in FOUR_BIT or weight.part == "embedding" or weight.in_features % BLOCK_COLUMNS:
            continue
        for name in weight.sources:
            if not weight.transposed and keeps(source.stored_type(name) or "", weight.format):
                num_kept += 1
            else:
                formats[name] = weight.format
    return formats, num_kept


def calibrate_plan(
    config: PretrainedConfig,
    plan: Plan,
    source: WeightSource,
    text: CalibrationText,
    *,
    blocks: CalibratedBlocks,
    progress: Progress,
) -> Calibration:
    """Rounds the 4-bit matrices of a plan into `blocks`, which stay empty where that makes the model no better.

    `progress` is told what stays as it was.

    Raises:
        OptionError: there is nothing to round.
        CheckpointError: see `calibrate`.
    """
    formats, num_kept = matrices_to_round(plan, source)
    if not formats:
        why = "keep the checkpoint's own integers" if num_kept else "have more"
        raise OptionError(
            f"calibration {text.name} has nothing to round: it is for matrices of 4 bits, and all {why}; leave it out, "
            "or choose another format"
        )
    if num_kept:
        progress.note(f"{num_kept} matrices keep the checkpoint's own integers, which calibration does not touch")
    text = text.at_most(max(_MOST_VALUES // _widest(config, plan, text), LEAST_TOKENS)).held_last()
    progress.stage("calibrate", len(formats))
    held = calibrate(config, formats, source, text, blocks=blocks, progress=progress)
    if len(blocks) and not held.calibrated < held.nearest:  # also where it is no number
        blocks.clear()
        progress.note(
            f"all matrices are rounded to the nearest values: calibration on {text.name} gains nothing where it was "
            f"not read, KL {held.calibrated:.3g} instead of {held.nearest:.3g}; give a longer text"
        )
    return Calibration(text.name, text.num_tokens, len(blocks), len(formats) - len(blocks), num_kept, held)


def _widest(config: PretrainedConfig, plan: Plan, text: CalibrationText) -> int:
    """Values of a token that are there together: of a layer's matrices, or of eager attention's weights."""
    columns = [
        max(weight.in_features, weight.out_features) for weight in plan.weights.values() if weight.part == "linear"
    ]
    is_eager = attention_for_reference(config) == "eager"
    return max(*columns, int(config.num_attention_heads) * text.windows.shape[1] if is_eager else 1)
