"""A process that has imported all that an export and a training run need, and forks a child for each call.

Run as a program: every line of standard input is a call as JSON, every line of standard output how its child ended.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tqdm

REFUSED, FAULT = 2, 3  # exit codes of a child beside 0
MOST_SECONDS = 300  # of a child, after which it ends with SIGALRM


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int  # negative: a signal
    seconds: float
    error: str  # class and message

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class PreparedExporter:
    """The process, seen from the tests; the model of `target` is traced before the first call."""

    def __init__(self, target: str, log: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, target, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def call(
        self, kind: str, *, kill_after: float | None = None, limits: dict[str, int] | None = None, **given: Any
    ) -> Ended:
        """Forks a child for a call; limits: names of the module `resource`, RLIMIT_AS relative to what it has."""
        request = {"kind": kind, "kill_after": kill_after, "limits": limits or {}, "given": given}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _export(target: str, out: str, max_positions: int, calibration: str | None = None) -> None:
    from pilotfish.exporter import ExportOptions, ModelFormats, export

    options = ExportOptions(
        target=ModelFormats("f32" if calibration is None else "int4", "f32", "f32"),
        calibration=None if calibration is None else Path(calibration),
        overwrite=True,
        max_positions=max_positions,
        parity_tokens=16,
    )
    export(target, Path(out), options=options)


def _train(target: str, data: str, out: str) -> None:
    from tiny_training import tiny_options

    from pilotfish.exporter.training import SelfText, Stage, train

    options = tiny_options(
        target=target,
        data=Path(data),
        out=Path(out),
        writing=SelfText(tokens=120, batch=8, prompt_tokens=20, answer_tokens=10),
        text=Stage(48, 4, 1e-2, 1),
        self_text=Stage(48, 2, 1e-3, 0),
        batch_tokens=96,
        checkpoint_every=1,
        evaluate_every=2,
    )
    train(options)


def _run_child(kind: str, limits: dict[str, int], given: dict[str, Any], log: int) -> int:
    from pilotfish.exporter import ExportError

    signal.alarm(MOST_SECONDS)
    # The lock that tqdm shares among processes would stay locked where one that has it is killed.
    tqdm.tqdm.set_lock(threading.RLock())
    try:
        for name, value in limits.items():
            if name == "RLIMIT_AS":
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                value += pages * resource.getpagesize()  # noqa: PLW2901 - of the process as it is
            resource.setrlimit(getattr(resource, name), (value, value))
        {"export": _export, "train": _train}[kind](**given)
    except ExportError as error:
        os.write(log, f"{type(error).__name__}: {error}".encode())
        return REFUSED
    except BaseException:  # noqa: BLE001 - reported
        os.write(log, traceback.format_exc().encode())
        return FAULT
    return 0


def _serve(target: str, log_path: Path) -> None:
    import accelerate  # noqa: F401 - imported here, so that no child has to
    import matplotlib.pyplot as plt  # noqa: F401
    import onnxruntime  # noqa: F401
    import tiny_training  # noqa: F401
    import torch
    import traced_once

    from pilotfish.exporter import load, model_export

    torch.set_num_threads(1)
    traced_once.trace_once()
    model_export.trace(model_export.build_on_meta(load.load_checkpoint(target).config))  # which takes seconds
    for line in sys.stdin:
        request = json.loads(line)
        read, write = os.pipe()
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            os.close(read)
            sink = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            os._exit(_run_child(request["kind"], request["limits"], request["given"], write))
        os.close(write)
        sys.stdout.write(json.dumps(_end_of(child, request["kill_after"], read, started)) + "\n")
        sys.stdout.flush()


def _end_of(child: int, kill_after: float | None, read: int, started: float) -> dict[str, Any]:
    status: int | None = None
    while status is None and kill_after is not None:
        done, ended = os.waitpid(child, os.WNOHANG)
        if done:
            status = ended
        elif time.monotonic() - started >= kill_after:
            os.kill(child, signal.SIGKILL)
            break
        else:
            time.sleep(0.001)
    if status is None:
        status = os.waitpid(child, 0)[1]
    with os.fdopen(read, "rb") as pipe:
        error = pipe.read().decode(errors="replace")
    return {"code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - started, "error": error}


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
