"""Trains a draft or head from beginning to end: data, the target's own text, training, evaluation, card."""

from __future__ import annotations

import datetime as dt
import importlib.util
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, TextIO

import torch

from pilotfish.exporter.border import only_own_errors

from .boost import missed_rows
from .card import write_card
from .command import command_line
from .conversation import Excerpts
from .draft import read_draft
from .errors import DataError, MissingExtraError, ResumeError
from .evaluate import CategoryScores, evaluate_prompts, read_prompts
from .loop import Trainer
from .passes import StageData
from .progress import NoTrainingProgress, TrainingProgress
from .record import PhaseClock, StageSummary, TrainingRecord, plain_options
from .rows import TokenRows, split_rows
from .self_text import pack_conversations, read_shard, write_shards
from .storage import write_text
from .students import new_student
from .target import Target, load_target
from .text import find_text, pack_text
from .workspace import (
    TimeLimit,
    check_claim,
    claim_folder,
    device_name,
    lock_folder,
    new_accelerator,
    options_in,
    remove_unfinished,
)

if TYPE_CHECKING:
    from pathlib import Path

    from .options import Stage, TrainOptions
    from .student import Student

RECORD = "training.json"
WORK = "training"
SHARDS = "self_text_shards"
_EXTRA = ("accelerate", "matplotlib")  # imported where they are used
_VERSIONS = ("torch", "transformers", "accelerate", "tokenizers")


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a finished run left in `folder`: weights, configuration, README.md, curves.png and training.json."""

    folder: Path
    record: TrainingRecord


def train(options: TrainOptions, progress: TrainingProgress | None = None) -> TrainResult:
    """Trains a draft or a head; after a kill, a full disk or the time limit the same call continues.

    Under `torchrun` or `accelerate launch` every process makes this call.

    Raises:
        TimeLimitReached: the time limit passed; call again to continue.
        ExportError: one of the classes of `errors` or of the exporter, naming the value and the remedy.
    """
    for package in _EXTRA:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(f"training needs {package}: pip install 'pilotfish[export,train]'")
    with only_own_errors(f"training {options.out}"):
        run = _Run(options, progress or NoTrainingProgress())
        try:
            return run.finish()
        finally:
            run.close()


class _Run:
    """The phases of one call; each reads its predecessor's files, so a later call skips what is done."""

    def __init__(self, options: TrainOptions, progress: TrainingProgress) -> None:
        self._time = TimeLimit(options.time_limit_s)
        self._options, self._progress, self._work = options, progress, options.out / WORK
        self._prompts = read_prompts(options.evaluation_prompts) if options.evaluation_prompts else ()
        self._given = read_prompts(options.user_turns) if options.user_turns else ()
        self._files = find_text(options.data, options.data_licence)
        self._turn_files = find_text(options.user_turns, options.data_licence) if options.user_turns else ()
        self._accelerator = new_accelerator(options)
        self._lock = self._lock_folder()
        with self._accelerator.main_process_first():
            claim_folder(options, self._work)
        self._clock = PhaseClock(self._work / f"clock-{self._accelerator.process_index}.json")

    def close(self) -> None:
        """Lets other runs into the folder."""
        if self._lock is not None:
            self._lock.close()

    def _lock_folder(self) -> TextIO | None:
        """The first process keeps other runs out, and removes what a killed one left."""
        if not self._accelerator.is_main_process:
            return None
        check_claim(self._options, self._work)
        lock = lock_folder(self._work)
        if count := remove_unfinished(self._work):
            self._progress.phase(f"remove {count} unfinished files of a run that was killed", count)
            self._progress.advance(count)
        return lock

    def finish(self) -> TrainResult:
        """All phases."""
        options = self._options
        target = self._load_target()
        stages = self._stages(target)
        student = new_student(options, target, stages)
        trainer = Trainer(
            options,
            self._accelerator,
            target,
            student,
            stages,
            folder=self._work,
            progress=self._progress,
            time_is_up=self._time.is_up,
        )
        with self._clock.phase("training"):
            student = trainer.run()
        with self._clock.phase("evaluation"):
            summaries = tuple(_summary(trainer, data) for data in stages)
            prompts = self._evaluate_prompts(target, student)
        record = self._record(target, student, trainer, summaries, prompts)
        if self._accelerator.is_main_process:
            student.save(options.out)
            write_card(record, options.out)
            write_text(options.out / RECORD, record.to_json())
        self._accelerator.wait_for_everyone()
        return TrainResult(options.out, record)

    def _load_target(self) -> Target:
        self._progress.phase("load the target", 1)
        dtype = torch.bfloat16 if self._accelerator.mixed_precision == "bf16" else torch.float32
        target = load_target(self._options.target, self._options.target_formats, dtype, self._accelerator.device)
        self._progress.advance(1)
        return target

    def _stages(self, target: Target) -> tuple[StageData, ...]:
        options, stages = self._options, []
        if options.text.steps:
            stages.append(self._stage("text", options.text, self._text_rows(target), target))
        if options.self_text.steps:
            shards = self._written_shards(target)
            stages.append(self._stage("self_text", options.self_text, self._self_written_rows(target, shards), target))
        return tuple(stages)

    def _stage(self, name: str, stage: Stage, rows: TokenRows, target: Target) -> StageData:
        if self._options.earlier:
            rows = self._missed_rows(name, rows, target)
        return StageData(name, stage, rows, split_rows(len(rows), self._options.seed))

    def _missed_rows(self, name: str, rows: TokenRows, target: Target) -> TokenRows:
        """The rows with only what the earlier drafts miss."""
        self._progress.phase(f"what earlier drafts miss in {name}", len(rows) * rows.header.length)
        drafts = [
            (path, read_draft(path, target).to(self._accelerator.device, target.head.dtype))
            for path in self._options.earlier
        ]
        with self._clock.phase("earlier drafts"), self._accelerator.main_process_first():
            return missed_rows(rows, target, drafts, self._work / f"{name}_missed", advance=self._progress.advance)

    def _text_rows(self, target: Target) -> TokenRows:
        self._progress.phase("tokenise", sum(file.bytes for file in self._files))
        prompts = [prompt.text for prompt in self._prompts]
        length, folder = self._options.text.length, self._work / "text"
        with self._clock.phase("tokenising"), self._accelerator.main_process_first():
            return pack_text(self._files, target.backend, length, prompts, folder, advance=self._progress.advance)

    def _written_shards(self, target: Target) -> Path:
        """The folder of the target's conversations, written here or by the run that the options name."""
        options = self._options
        if options.written is not None:
            return _shards_of(options)
        text = self._text_rows(target)
        quotable = Excerpts(text, split_rows(len(text), options.seed).train)
        self._progress.phase("the target writes", options.writing.tokens)
        with self._clock.phase("writing by the target"):
            write_shards(
                target,
                options.writing,
                quotable,
                given=[turn.text for turn in self._given],
                seed=options.seed,
                folder=self._work / SHARDS,
                advance=self._progress.advance,
                time_limit=self._time,
            )
        torch.cuda.empty_cache()  # keys and values of thousands of rows
        return self._work / SHARDS

    def _self_written_rows(self, target: Target, shards: Path) -> TokenRows:
        length, folder = self._options.self_text.length, self._work / "self_text"
        with self._accelerator.main_process_first():
            return pack_conversations(shards, target, length, [prompt.text for prompt in self._prompts], folder)

    def _evaluate_prompts(self, target: Target, student: Student) -> tuple[CategoryScores, ...]:
        if not self._prompts or not self._accelerator.is_main_process:
            return ()
        self._progress.phase("answer the evaluation prompts", len(self._prompts))
        return evaluate_prompts(target, student, self._prompts, self._options.evaluation_tokens, self._progress.advance)

    def _record(
        self,
        target: Target,
        student: Student,
        trainer: Trainer,
        stages: tuple[StageSummary, ...],
        prompts: tuple[CategoryScores, ...],
    ) -> TrainingRecord:
        options, state, checkpoint = self._options, trainer.state, target.checkpoint
        target_size, own_size = (sum(part.numel() for part in model.parameters()) for model in (target.model, student))
        return TrainingRecord(
            command=command_line(options),
            options=plain_options(options),
            target_id=checkpoint.id,
            target_sha256=checkpoint.sha256,
            target_licence=checkpoint.licence,
            target_parameters=target_size,
            kind=options.kind,
            description=student.describe(),
            trained_parameters=own_size,
            device=device_name(self._accelerator.device),
            num_processes=self._accelerator.num_processes,
            versions={"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}},
            date=dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
            seconds=self._clock.seconds,
            flops=options.batch_tokens * state.total_steps * (2.0 * target_size + 6.0 * own_size),
            files=(*self._files, *self._turn_files),
            self_written_tokens=self._self_written_tokens(),
            stages=stages,
            stopped_early=tuple(state.stopped_early),
            prompts=prompts,
            history=tuple(state.history),
        )

    def _self_written_tokens(self) -> int:
        options = self._options
        if not options.self_text.steps:
            return 0
        folder = self._work / SHARDS if options.written is None else _shards_of(options)
        shards = sorted(folder.glob("shard-*.npz"))
        return sum(len(item.tokens) - item.prompt_tokens for path in shards for item in read_shard(path))


def _shards_of(options: TrainOptions) -> Path:
    """The self-written text of another run.

    Raises:
        DataError: there is none.
        ResumeError: another target wrote it, or the same one with other weights.
    """
    assert options.written is not None  # noqa: S101
    work = options.written / WORK
    if not any((work / SHARDS).glob("shard-*.npz")):
        raise DataError(f"written is {options.written}; no run there has text that its target wrote")
    found, mine = options_in(work), plain_options(options)
    different = [name for name in ("target", "target_formats") if found.get(name) != mine[name]]
    if different:
        detail = "; ".join(f"{name} was {found.get(name)}, now {mine[name]}" for name in different)
        raise ResumeError(f"{options.written} has the text of another target ({detail}); write this one's own")
    return work / SHARDS


def _summary(trainer: Trainer, data: StageData) -> StageSummary:
    counts = trainer.evaluate(data)
    return StageSummary(
        name=data.name,
        length=data.stage.length,
        steps=data.stage.steps,
        rows=len(data.split.train),
        held_out_rows=len(data.split.held_out),
        held_out=counts.scores(),
        held_out_loss=counts.mean_loss,
    )
