"""What a text shows about a model's matrices: how to round them to 4 bits, and which of them need more."""

from .blocks import CalibratedBlocks
from .calibrated_plan import Calibration, calibrate_plan, matrices_to_round
from .mixture import Mixture, choose_mixture
from .text import CalibrationText, read_windows

__all__ = [
    "CalibratedBlocks",
    "Calibration",
    "CalibrationText",
    "Mixture",
    "calibrate_plan",
    "choose_mixture",
    "matrices_to_round",
    "read_windows",
]
