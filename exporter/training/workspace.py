"""The run's processes, its folder and its time limit."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from typing import TYPE_CHECKING, Any, TextIO

import torch

from pilotfish.bindings.operating_system import lock_file
from pilotfish.exporter.errors import OutputExistsError

from .errors import ResumeError, TimeLimitReached, TrainingOptionError
from .record import plain_options
from .storage import storage_errors, write_text

if TYPE_CHECKING:
    from pathlib import Path

    from accelerate import Accelerator

    from .options import TrainOptions

_OPTIONS = "options.json"
_LOCK = "lock"
_MAY_CHANGE = ("time_limit_s",)


class TimeLimit:
    """Counts from its construction; None never ends."""

    def __init__(self, seconds: float | None) -> None:
        self._ends = None if seconds is None else time.monotonic() + seconds

    def is_up(self) -> bool:
        """Whether the time has passed."""
        return self._ends is not None and time.monotonic() > self._ends

    def check(self, doing: str) -> None:
        """Ends the call once the time has passed.

        Raises:
            TimeLimitReached: it has.
        """
        if self.is_up():
            raise TimeLimitReached(f"time limit: stopped while {doing}; run again to continue")


def new_accelerator(options: TrainOptions) -> Accelerator:
    """The processes of this run, one without a launcher.

    Raises:
        TrainingOptionError: a GPU was asked for and there is none, or a launcher asked for sharding that is not FSDP2's
            on GPUs.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        raise TrainingOptionError("device is 'cuda'; this torch sees no GPU")
    on_gpu = options.device != "cpu" and torch.cuda.is_available()
    dtype = options.dtype or ("bf16" if on_gpu else "fp32")
    # it plans anew for every shape, and chains of guesses differ in width from step to step: 0.3 s a step on an H200
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    from accelerate import Accelerator  # noqa: PLC0415 - of the extra "train", which --help does without

    accelerator = Accelerator(mixed_precision="bf16" if dtype == "bf16" else "no", cpu=not on_gpu)
    _check_sharding(accelerator)
    for stage in (options.text, options.self_text):
        options.rows_per_pass(stage, accelerator.num_processes)
    return accelerator


def _check_sharding(accelerator: Accelerator) -> None:
    """Data-parallel processes and FSDP2 (fully_shard) are supported.

    FSDP1 flattens parameters, which weight decay by shape and the best weights' names do not survive. DeepSpeed brings
    an optimizer of its own. On CPUs accelerate would leave sharding out without a word.
    """
    from accelerate.utils import DistributedType  # noqa: PLC0415 - as above

    kind = accelerator.distributed_type
    wants_fsdp = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    is_other = (kind == DistributedType.FSDP and not accelerator.is_fsdp2) or kind == DistributedType.DEEPSPEED
    if is_other or (wants_fsdp and kind != DistributedType.FSDP):
        found = f"{kind.value.lower()} on {accelerator.num_processes} processes, device {accelerator.device.type}"
        raise TrainingOptionError(
            f"a launcher asked for sharding, and what it would get is {found}; sharded training is FSDP2's on several "
            "GPUs (accelerate launch --use_fsdp --fsdp_version 2): use that, or data-parallel processes (torchrun)"
        )


def device_name(device: torch.device) -> str:
    """For the card."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"


def options_in(work: Path) -> dict[str, Any]:
    """The options of the run that a work folder belongs to.

    Raises:
        ResumeError: they cannot be read.
    """
    path = work / _OPTIONS
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ResumeError(f"{path} is damaged; delete {work.parent} to train again") from error
    return found


def lock_folder(work: Path) -> TextIO:
    """Makes the work folder and keeps other runs out of it until the file that this returns is closed.

    Raises:
        OutputExistsError: another process trains there.
        StorageError: it cannot be made.
    """
    with storage_errors(work):
        work.mkdir(parents=True, exist_ok=True)
        lock = (work / _LOCK).open("w", encoding="utf-8")
    try:
        lock_file(lock.fileno())
    except BlockingIOError as error:
        lock.close()
        raise OutputExistsError(
            f"another process trains into {work.parent}; wait for it, or choose another folder"
        ) from error
    return lock


def remove_unfinished(work: Path) -> int:
    """Removes what a killed run had begun to write, and says of how many files and folders; needs the lock."""
    found = [*work.parent.glob("*.partial"), *work.glob("*.partial"), *work.glob("*/*.partial")]
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return len(found)


def check_claim(options: TrainOptions, work: Path) -> None:
    """Refuses a folder of something else, before anything is written there.

    Raises:
        OutputExistsError: `out` holds something else.
    """
    if (work / _OPTIONS).is_file():
        return
    out = options.out
    is_new = not out.exists() or (out.is_dir() and set(out.iterdir()) <= {work})
    if work.exists():  # a run that was killed before it could say what it is
        is_new = is_new and {path.name for path in work.iterdir()} <= {_LOCK, f"{_OPTIONS}.partial"}
    if not is_new:
        raise OutputExistsError(f"{out} exists and is not the folder of a training run; choose another one")


def claim_folder(options: TrainOptions, work: Path) -> None:
    """Marks the work folder as this run's, or recognises it.

    Raises:
        ResumeError: it belongs to a run with other options; names them.
    """
    path = work / _OPTIONS
    mine = {name: value for name, value in plain_options(options).items() if name not in _MAY_CHANGE}
    if not path.is_file():
        write_text(path, json.dumps(mine, indent=1))
        return
    found = options_in(work)
    different = sorted(name for name in mine if found.get(name) != mine[name])
    if different:
        detail = "; ".join(f"{name} was {found.get(name)}, now {mine[name]}" for name in different)
        raise ResumeError(f"{options.out} belongs to a run with other options ({detail}); use those or another folder")
