"""The training loop: optimizer steps over the stages, evaluations, early stop, checkpoints.

Rows and learning rates are functions of the step, so a run that continues from a checkpoint repeats the same numbers
(on a CPU bit for bit).
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from typing import TYPE_CHECKING

import torch

from .errors import DivergedError, TimeLimitReached
from .optimizer import new_optimizers
from .passes import Passes, StageData
from .progress import StepReport, TrainingProgress
from .rows import StepOrder
from .state import Checkpoints, Measurement, TrainingState, load_best, save_best

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from accelerate import Accelerator

    from .acceptance import AcceptanceCounts
    from .options import Stage, TrainOptions
    from .student import Student
    from .target import Target

_MAX_GRADIENT_NORM = 1.0
_FINAL_RATE_SHARE = 0.1
CURVE_CHAIN = 4  # chain length whose expected tokens a round the curves show


def learning_rate(stage: Stage, step: int) -> float:
    """Of step 0, 1, ...: linear warm-up, then a cosine from the peak to a tenth of it."""
    if step < stage.warmup_steps:
        return stage.learning_rate * (step + 1) / stage.warmup_steps
    share = (step - stage.warmup_steps) / max(1, stage.steps - stage.warmup_steps - 1)
    return stage.learning_rate * (_FINAL_RATE_SHARE + (1 - _FINAL_RATE_SHARE) * (1 + math.cos(math.pi * share)) / 2)


class Trainer:
    """One run over the stages. `run` continues where the last checkpoint in `folder` ends."""

    def __init__(
        self,
        options: TrainOptions,
        accelerator: Accelerator,
        target: Target,
        student: Student,
        stages: tuple[StageData, ...],
        *,
        folder: Path,
        progress: TrainingProgress,
        time_is_up: Callable[[], bool],
    ) -> None:
        self._options, self._accelerator, self._stages = options, accelerator, stages
        self._progress, self._time_is_up = progress, time_is_up
        self._target = target
        # fully_shard changes a module in place: what is evaluated and saved in the end is a whole one
        self._student = copy.deepcopy(student).to(accelerator.device) if accelerator.is_fsdp2 else student
        student = student.to(accelerator.device)
        optimizers = new_optimizers(student, options.optimizer, accelerator.device, sharded=accelerator.is_fsdp2)
        self._module, *self._optimizers = accelerator.prepare(student, *optimizers)
        self._passes = Passes(accelerator, target, self._module, student, options.keep_states_gb * 1e9)
        self.state = TrainingState()
        accelerator.register_for_checkpointing(self.state)
        self._checkpoints = Checkpoints(folder, accelerator)
        self._best_path = folder / "best.safetensors"
        self._orders = [
            StepOrder(
                data.split.train,
                options.batch_tokens // data.stage.length,
                options.seed,
                f"the {data.name} stage",
            )
            for data in stages
        ]

    def run(self) -> Student:
        """Trains all stages; returns the student with the best weights of the last one.

        Raises:
            DivergedError: the loss is not finite; nothing of that step is kept.
            TimeLimitReached: after a checkpoint.
            StorageError: a checkpoint could not be written.
            ResumeError: the last checkpoint cannot be read.
        """
        self._checkpoints.load_last()
        while self.state.stage_index < len(self._stages):
            data = self._stages[self.state.stage_index]
            self._progress.phase(f"train on {data.name}", data.stage.steps)
            self._progress.advance(self.state.step)
            while self.state.step < data.stage.steps and not self._gains_nothing():
                self._step(data)
                self._after_step(data)
            self._end_stage(data)
        load_best(self._student, self._best_path)
        if self._accelerator.is_fsdp2:
            self._passes = Passes(self._accelerator, self._target, self._student, self._student, 0)
        return self._student

    def evaluate(self, data: StageData) -> AcceptanceCounts:
        """Counts over a stage's held-out rows with the present weights."""
        return self._passes.held_out(data, self._options.rows_per_pass(data.stage, self._accelerator.num_processes))

    def _step(self, data: StageData) -> None:
        started = time.monotonic()
        order, state = self._orders[self.state.stage_index], self.state
        batches = self._passes.share(data, order.rows_of(state.step), self._options.gradient_accumulation)
        scored = self._passes.sum(torch.stack([batch.scored.sum() for batch in batches]).sum())
        counts = self._passes.new_counts()
        self._module.train()
        for number, batch in enumerate(batches, start=1):
            last = number == len(batches)
            with contextlib.nullcontext() if last else self._accelerator.no_sync(self._module):
                distance = self._passes.forward(data, batch)
                # data-parallel wrappers average gradients over processes; the loss is a mean over all scored tokens
                self._accelerator.backward(distance.loss_sum * (self._accelerator.num_processes / scored))
            counts.add(batch.scored, distance)
        counts.vector = self._passes.sum(counts.vector)
        rate = learning_rate(data.stage, state.step)
        self._update(counts.mean_loss, rate, f"step {state.step + 1} of the {data.name} stage")
        seconds = time.monotonic() - started
        state.step, state.total_steps, state.seconds = state.step + 1, state.total_steps + 1, state.seconds + seconds
        self._record(data, counts, rate, self._options.batch_tokens / seconds, held_out=False)
        self._progress.advance(1)

    def _update(self, loss: float, rate: float, where: str) -> None:
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} at {where}; run again with a lower learning rate in another output folder, "
                "or check the data and the target"
            )
        self._accelerator.clip_grad_norm_(self._module.parameters(), _MAX_GRADIENT_NORM)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()

    def _after_step(self, data: StageData) -> None:
        step, options = self.state.step, self._options
        if step % options.evaluate_every == 0 or step == data.stage.steps:
            self._evaluate_and_keep_best(data)
        mine = torch.tensor(float(self._time_is_up()), device=self._accelerator.device)
        time_is_up = bool(self._passes.sum(mine) > 0)  # of any process
        if time_is_up or step % options.checkpoint_every == 0:
            self._checkpoints.save(self.state.total_steps)
        if time_is_up:
            raise TimeLimitReached(
                f"time limit: stopped after step {step} of the {data.name} stage; run again to continue"
            )

    def _evaluate_and_keep_best(self, data: StageData) -> None:
        state = self.state
        counts = self.evaluate(data)
        self._record(data, counts, learning_rate(data.stage, state.step - 1), 0.0, held_out=True)
        merit = self._student.merit(counts.scores())
        if merit <= state.best_merit:
            state.evaluations_without_gain += 1
            return
        state.best_merit, state.evaluations_without_gain = merit, 0
        weights = self._accelerator.get_state_dict(self._module)
        if self._accelerator.is_main_process:
            save_best(weights, self._best_path)

    def _gains_nothing(self) -> bool:
        return self.state.evaluations_without_gain >= self._options.patience

    def _end_stage(self, data: StageData) -> None:
        state = self.state
        if state.step < data.stage.steps:
            state.stopped_early.append(f"{data.name} after step {state.step} of {data.stage.steps}")
        state.stage_index, state.step = state.stage_index + 1, 0
        state.best_merit, state.evaluations_without_gain = -1.0, 0
        self._checkpoints.save(state.total_steps)

    def _record(self, data: StageData, counts: AcceptanceCounts, rate: float, speed: float, *, held_out: bool) -> None:
        state, scores, loss = self.state, counts.scores(), counts.mean_loss
        length = scores.greedy_lengths[CURVE_CHAIN - 1]
        state.history.append(
            Measurement(
                stage=data.name,
                step=state.step,
                total_step=state.total_steps,
                seconds=state.seconds,
                loss=loss,
                sampled=scores.sampled,
                greedy=scores.greedy,
                greedy_length=length,
                learning_rate=rate,
                held_out=held_out,
            )
        )
        batch, held = (None, scores) if held_out else (scores, None)
        self._progress.report(StepReport(data.name, state.step, data.stage.steps, loss, rate, speed, batch, held))
