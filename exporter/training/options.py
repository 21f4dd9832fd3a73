"""Everything a user can set about the training of a draft or head, checked once here. Knows nothing about torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import TrainingOptionError
from .shapes import SHAPES, DraftShape, HeadShape, check_at_least

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.options import ModelFormats

LOSSES = ("forward-kl", "reverse-kl", "total-variation")
OPTIMIZERS = ("adamw", "muon")
DTYPES = ("bf16", "fp32")
DEVICES = ("auto", "cuda", "cpu")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of training: `steps` optimizer steps on rows of `length` tokens; 0 steps skip the stage.

    The learning rate rises linearly over `warmup_steps` and falls along a cosine to a tenth of its peak.

    Raises:
        TrainingOptionError: a value outside its range.
    """

    length: int
    steps: int
    learning_rate: float
    warmup_steps: int

    def __post_init__(self) -> None:
        check_at_least(self, 2, "length")
        check_at_least(self, 0, "steps", "warmup_steps")
        if not 0 < self.learning_rate < 1:
            raise TrainingOptionError(f"learning_rate is {self.learning_rate}; it must lie between 0 and 1")
        if self.steps and self.warmup_steps >= self.steps:
            raise TrainingOptionError(f"warmup_steps is {self.warmup_steps}; it must be below steps = {self.steps}")


@dataclass(frozen=True, slots=True)
class SelfText:
    """The text that the target writes: user turns out of its chat template, and its answers to them.

    tokens: answer tokens to write at least.
    batch: conversations written together.
    prompt_tokens, answer_tokens: longest prompt (template included) and longest answer.
    temperatures: the answers take these in turn; 0 is greedy.
    excerpt_share: share of user turns that quote the training text; the target writes the others itself.

    Raises:
        TrainingOptionError: a value outside its range.
    """

    tokens: int = 12_000_000
    batch: int = 1024
    prompt_tokens: int = 192
    answer_tokens: int = 320
    temperatures: tuple[float, ...] = (0.0, 0.0, 0.7, 1.0)
    excerpt_share: float = 0.5

    def __post_init__(self) -> None:
        check_at_least(self, 1, "tokens", "batch", "prompt_tokens")
        check_at_least(self, 2, "answer_tokens")
        if not self.temperatures or min(self.temperatures) < 0:
            raise TrainingOptionError(f"temperatures are {self.temperatures}; give at least one, none below 0")
        if not 0 <= self.excerpt_share <= 1:
            raise TrainingOptionError(f"excerpt_share is {self.excerpt_share}; it must lie in 0..1")


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Options of `train`.

    target: hub id, folder or .gguf file of the model to imitate.
    data: a text file, or a folder whose *.txt and *.md files are read; a manifest.json in it may name licences.
    out: folder of the finished draft or head; its subfolder "training" holds the state that a later call continues.
    shape: the dimensions of the draft or head, and by its class which kind it is.
    initial: a folder whose weights (of the same shape) are the start.
    earlier: finished drafts that a further draft is to complete in merged trees: only positions are trained and scored
        where none of them names the target's likeliest token.
    text, self_text: the two stages: ordinary text, then short conversations that the target wrote.
    writing: how the target writes the second stage's text.
    user_turns: JSON lines with "prompt" and "category": user turns that the target answers, in an order by the seed,
        before it writes any of its own; those of more tokens than writing.prompt_tokens are left out.
    written: the `out` of another run for the same target, whose self-written text is taken instead of writing it.
    batch_tokens: tokens of one optimizer step over all processes; gradient_accumulation: passes it is split into.
    loss: the divergence between the target's and the student's next-token distributions, one of LOSSES.
    optimizer: "adamw", or "muon" for the matrices of hidden layers, with AdamW for embeddings, output layers and norms.
    dtype: bf16 (autocast, f32 master weights) or fp32; None takes bf16 on a GPU and fp32 elsewhere.
    device: "auto" takes a GPU if there is one.
    evaluate_every, patience: a stage ends early after `patience` evaluations without a better held-out acceptance.
    checkpoint_every: optimizer steps between checkpoints; the last two are kept.
    keep_states_gb: memory of each process's device for states of the target, which then looks at a row of text once
        instead of once an epoch.
    target_formats: train against the weights that a bundle with these formats stores; None takes them as loaded.
    evaluation_prompts: JSON lines with "prompt" and "category"; text rows that overlap them are not trained on.
    evaluation_tokens: greedy tokens of the target for each evaluation prompt.
    data_licence: licence of the data where its manifest.json does not say.
    time_limit_s: stop with all state saved after this many seconds; the same call continues.

    Raises:
        TrainingOptionError: a value outside its range, or a batch that does not divide.
    """

    target: str
    data: Path
    out: Path
    shape: DraftShape | HeadShape = DraftShape()  # noqa: RUF009 - frozen
    initial: Path | None = None
    earlier: tuple[Path, ...] = ()
    text: Stage = Stage(length=1024, steps=900, learning_rate=2e-3, warmup_steps=50)
    self_text: Stage = Stage(length=512, steps=360, learning_rate=1e-3, warmup_steps=20)
    writing: SelfText = SelfText()
    user_turns: Path | None = None
    written: Path | None = None
    batch_tokens: int = 65_536
    gradient_accumulation: int = 1
    loss: str = "forward-kl"
    optimizer: str = "adamw"
    dtype: str | None = None
    device: str = "auto"
    seed: int = 0
    evaluate_every: int = 50
    patience: int = 6
    checkpoint_every: int = 100
    keep_states_gb: float = 0.0
    target_formats: ModelFormats | None = None
    evaluation_prompts: Path | None = None
    evaluation_tokens: int = 128
    data_licence: str | None = None
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        check_at_least(
            self, 1, "gradient_accumulation", "evaluate_every", "patience", "checkpoint_every", "evaluation_tokens"
        )
        check_at_least(self, 0, "seed", "keep_states_gb")
        named = (("loss", LOSSES), ("optimizer", OPTIMIZERS), ("dtype", (None, *DTYPES)), ("device", DEVICES))
        for name, allowed in named:
            if getattr(self, name) not in allowed:
                choices = ", ".join(str(choice) for choice in allowed if choice is not None)
                raise TrainingOptionError(f"{name} is {getattr(self, name)!r}; choose one of {choices}")
        if self.text.steps + self.self_text.steps == 0:
            raise TrainingOptionError("both stages have 0 steps; give at least one of them some")
        for name in ("text", "self_text"):
            self._check_stage(name, getattr(self, name))
        if self.self_text.steps and self.writing.prompt_tokens + self.writing.answer_tokens > self.self_text.length:
            raise TrainingOptionError(
                f"prompt_tokens + answer_tokens is {self.writing.prompt_tokens + self.writing.answer_tokens}; "
                f"a row of the second stage holds {self.self_text.length}"
            )
        if self.user_turns and (self.written or not self.self_text.steps):
            why = f"written is {self.written}" if self.written else "self_text.steps is 0"
            raise TrainingOptionError(f"user_turns is {self.user_turns}, but {why}: nothing is written; leave one out")
        if self.time_limit_s is not None and self.time_limit_s <= 0:
            raise TrainingOptionError(f"time_limit_s is {self.time_limit_s}; it must be above 0")
        if self.earlier and self.kind != "draft":
            raise TrainingOptionError(
                f"earlier drafts are given; a {self.kind} head cannot be trained to complete them"
            )
        self._check_out()

    def _check_stage(self, name: str, stage: Stage) -> None:
        unit = stage.length * self.gradient_accumulation
        if stage.steps and (self.batch_tokens < unit or self.batch_tokens % unit):
            raise TrainingOptionError(
                f"batch_tokens is {self.batch_tokens}; the {name} stage needs a multiple of "
                f"length * gradient_accumulation = {unit}"
            )

    def _check_out(self) -> None:
        data, out = self.data.resolve(), self.out.resolve()
        if out == data or out in data.parents or data in out.parents:
            raise TrainingOptionError(f"out is {self.out}; it must not contain or lie in the data {self.data}")

    @property
    def kind(self) -> str:
        """A key of SHAPES."""
        return next(kind for kind, shape in SHAPES.items() if type(self.shape) is shape)

    def rows_per_pass(self, stage: Stage, num_processes: int) -> int:
        """Rows of one forward pass of one process.

        Raises:
            TrainingOptionError: the batch does not divide by the number of processes.
        """
        rows = self.batch_tokens // stage.length
        passes = self.gradient_accumulation * num_processes
        if rows % passes:
            raise TrainingOptionError(
                f"a batch has {rows} rows of {stage.length} tokens; "
                f"{num_processes} processes times {self.gradient_accumulation} passes need a multiple of {passes}"
            )
        return rows // passes
