"""A process without memory left gets OutOfMemoryError, wherever the memory runs out, and goes on."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Opens a bundle under limits that rise from nothing to what it needs, and generates once there is enough.
OPEN_UNDER_LIMITS = """
import resource, sys
import numpy as np
from pilotfish.bindings import Calibration, EngineOptions, OutOfMemoryError, calls
from pilotfish.runtime.ort import ort_for
from pilotfish.runtime.options import GenerateOptions

options = EngineOptions(ort_library=str(ort_for("cpu")), num_threads=2, calibration=Calibration.OFF)
request = GenerateOptions(max_new_tokens=4).to_request(has_draft=True, max_draft_tokens=8)
calls.engine_open(sys.argv[1], options).close()  # ONNX Runtime itself does not go on where its own start failed

def size():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))

failures = 0
for step in range(400):
    resource.setrlimit(resource.RLIMIT_AS, (size() + step * 512 * 1024, resource.RLIM_INFINITY))
    try:
        with calls.engine_open(sys.argv[1], options) as engine:
            with calls.request_open(engine, np.array([1, 2, 3], np.int32), request) as running:
                tokens, _ = calls.request_step(running)
        print(len(tokens), failures, flush=True)
        break
    except OutOfMemoryError:
        failures += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_memory_that_runs_out_while_a_bundle_is_loaded(tiny_bundle: Path) -> None:
    command = [sys.executable, "-c", OPEN_UNDER_LIMITS, str(tiny_bundle)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    num_tokens, num_failures = map(int, finished.stdout.split())
    assert num_tokens == 1
    assert num_failures >= 5
