"""Training of drafts and heads for a target. Needs the extras "export" and "train"."""

from .distill import TrainResult, train
from .errors import TimeLimitReached, TrainingError
from .evaluate import CategoryScores, ChainScores, evaluate_draft
from .options import SelfText, Stage, TrainOptions
from .progress import NoTrainingProgress, StepReport, TrainingProgress
from .shapes import DraftShape, EagleShape, MedusaShape, SpeculatorShape

__all__ = [
    "CategoryScores",
    "ChainScores",
    "DraftShape",
    "EagleShape",
    "MedusaShape",
    "NoTrainingProgress",
    "SelfText",
    "SpeculatorShape",
    "Stage",
    "StepReport",
    "TimeLimitReached",
    "TrainOptions",
    "TrainResult",
    "TrainingError",
    "TrainingProgress",
    "evaluate_draft",
    "train",
]
