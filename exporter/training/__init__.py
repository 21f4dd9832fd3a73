"""Training of drafts: distils a small Llama for a target. Needs the extras "export" and "train"."""

from .distill import TrainResult, train_draft
from .errors import TimeLimitReached, TrainingError
from .evaluate import CategoryScores, ChainScores, evaluate_draft
from .options import DraftShape, SelfText, Stage, TrainDraftOptions
from .progress import NoTrainingProgress, StepReport, TrainingProgress

__all__ = [
    "CategoryScores",
    "ChainScores",
    "DraftShape",
    "NoTrainingProgress",
    "SelfText",
    "Stage",
    "StepReport",
    "TimeLimitReached",
    "TrainDraftOptions",
    "TrainResult",
    "TrainingError",
    "TrainingProgress",
    "evaluate_draft",
    "train_draft",
]
