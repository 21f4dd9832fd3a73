"""What goes wrong on a GPU is said with numbers and a remedy, and leaves the process able to go on."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from broken_rows import check_one_broken
from gpu.cpu_node import through_the_cpu

from pilotfish import Engine
from pilotfish.bindings import (
    BudgetTooSmallError,
    OnnxRuntimeMissingError,
    OutOfMemoryError,
    UnsupportedError,
    calls,
)
from pilotfish.runtime import cuda_libraries
from pilotfish.runtime.engine_options import memory_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from command_line import CommandLine

pytestmark = pytest.mark.gpu

MIB = 1 << 20
# Another process with memory of the GPU: all that is free but argv[1] bytes, until its stdin ends.
HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(free.value - int(sys.argv[1]))) == 0
print("holding", flush=True)
sys.stdin.read()
"""


@contextmanager
def little_memory_left(num_bytes: int) -> Iterator[None]:
    """Another process takes all but num_bytes of the GPU's free memory."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(num_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        try:
            yield
        finally:
            holder.communicate()


def still_works(bundle: Path) -> bool:
    with Engine(bundle, device="cuda", max_context=256, calibration="off") as engine:
        return len(engine.generate([5, 6, 7], max_new_tokens=8, ignore_eos=True).token_ids) == 8


def edited(bundle: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a bundle with another manifest."""
    copy = Path(shutil.copytree(bundle, folder / "bundle"))
    content = json.loads((copy / "manifest.json").read_text())
    change(content)
    (copy / "manifest.json").write_text(json.dumps(content))
    return copy


SHARED: list[list[dict[str, Any]]] = [
    [{"num_draft_tokens": 0}] * 4,
    [{"num_draft_tokens": 3}] * 4,
    [{"num_draft_tokens": 3, "temperature": 0.8, "seed": 3}] * 4,
    [{"tree": "dynamic", "tree_nodes": 7, "tree_depth": 3}] * 4,
    [{"num_draft_tokens": 0}, {"num_draft_tokens": 3}, {"num_draft_tokens": 0, "logprobs": 2}, {"source": "lookup"}],
    [{"num_draft_tokens": 0, "logprobs": 2}, {"source": "lookup"}, {"num_draft_tokens": 3}, {"num_draft_tokens": 0}],
]


@pytest.mark.parametrize("options", SHARED, ids=str)
@pytest.mark.parametrize("kind", ["tiny", "eagle3"])
def test_a_row_of_no_numbers_is_of_one_generation_alone(
    make_bundle: Callable[[str], Path],
    head_bundle: Callable[[str], Path],
    tmp_path: Path,
    kind: str,
    options: list[dict[str, Any]],
) -> None:
    """Those that share rounds with it go on without it, whatever the rounds draft."""
    bundle = make_bundle(kind) if kind == "tiny" else head_bundle(kind)
    common = {"max_new_tokens": 12, "ignore_eos": True, "reuse_prefix": False}
    asked = [([5 + 40 * number, 9 + number], common | own) for number, own in enumerate(options)]
    check_one_broken(bundle, asked, tmp_path, device="cuda", num_sequences=4, max_draft_tokens=15, calibration="off")
    assert still_works(bundle)


def test_a_device_that_is_not_there(tiny: Path, cli: CommandLine) -> None:
    with pytest.raises(UnsupportedError, match=r"cuda:63 does not exist; this process may use cuda:0 \("):
        Engine(tiny, device="cuda:63")
    assert cli("run", tiny, "w5", "--device", "cuda:63").exit_code == 2
    assert still_works(tiny)


def test_a_budget_that_is_too_small(tiny: Path) -> None:
    with pytest.raises(BudgetTooSmallError, match="target weights"):
        Engine(tiny, device="cuda", memory_budget="100MiB")
    assert still_works(tiny)


def test_two_processes_on_one_gpu(tiny: Path, cli: CommandLine) -> None:
    needed = memory_plan(tiny, device="cuda").total_bytes
    with little_memory_left(100 * MIB):
        with pytest.raises(OutOfMemoryError, match=r"(?s)cuda:0, .* MiB free, but .* need .*target cache.*nvidia-smi"):
            Engine(tiny, device="cuda")
        assert cli("run", tiny, "w5", "--device", "cuda").exit_code == 2
        assert cli("plan", tiny, "--device", "cuda").exit_code == 2
    with little_memory_left(needed):
        assert still_works(tiny)
    assert still_works(tiny)


def test_the_plan_holds(make_bundle: Callable[[str], Path]) -> None:
    bundle = make_bundle("asym")
    before = calls.cuda_info(0, measure=False).free_bytes
    with Engine(bundle, device="cuda", max_draft_tokens=15) as engine:
        engine.generate([5] * 600, max_new_tokens=200, num_draft_tokens=15, ignore_eos=True)
        engine.generate([6] * 100, max_new_tokens=100, tree="dynamic", tree_nodes=15, tree_depth=3, ignore_eos=True)
        used = before - calls.cuda_info(0, measure=False).free_bytes
        planned = engine.info.total_bytes
        assert engine.info.free_device_memory > planned
    assert used <= planned


def test_weights_that_the_kernels_lack(tiny: Path, tmp_path: Path) -> None:
    wide = edited(tiny, tmp_path, lambda content: content["models"]["target"]["formats"].update(linear="f32"))
    with pytest.raises(UnsupportedError, match=r"the target's linear weights are f32.*int4_asym"):
        Engine(wide, device="cuda")
    assert still_works(tiny)


def test_a_node_that_the_provider_lacks_is_named(tiny: Path, tmp_path: Path) -> None:
    def put_it_before_the_head(content: dict[str, Any]) -> None:
        path = tmp_path / "bundle" / "target.onnx"
        model = onnx.load(path, load_external_data=False)
        gather = next(node for node in model.graph.node if node.op_type == "GatherRows")
        gather.output[0] = "gathered"
        place = list(model.graph.node).index(gather) + 1
        for node in reversed(through_the_cpu("gathered", "rows")):
            model.graph.node.insert(place, node)
        path.write_bytes(model.SerializeToString())
        graph = content["models"]["target"]["graph"]
        graph.update(bytes=path.stat().st_size, sha256=sha256(path))

    bundle = edited(tiny, tmp_path, put_it_before_the_head)
    with pytest.raises(UnsupportedError, match=r"cannot run 1 of its nodes, Max \(of_the_cpu\)"):
        Engine(bundle, device="cuda")
    assert still_works(tiny)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_library_that_is_missing(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_libraries, "_is_loaded", lambda name: "cublasLt" not in name)
    with pytest.raises(OnnxRuntimeMissingError, match=r"libcublasLt\.so\.\d+ .*pip install nvidia-cublas"):
        Engine(tiny, device="cuda")
    monkeypatch.undo()
    assert still_works(tiny)


def test_the_commands(tiny: Path, cli: CommandLine) -> None:
    ran = cli("run", tiny, "w5 w6 w7", "--device", "cuda", "--max-new-tokens", 12, "--ignore-eos")
    assert ran.exit_code == 0, ran.err
    assert "12 new tokens" in ran.err
    assert "repacking the weights for cuda" in ran.err
    calibrated = cli("calibrate", tiny, "--device", "cuda", "--json", "-")
    assert calibrated.exit_code == 0, calibrated.err
    benched = cli("bench", tiny, "--device", "cuda", "--pass-repeats", 2, "--repeats", 2, "--json", "-")
    assert benched.exit_code == 0, benched.err
    assert "driver for CUDA" in json.loads(benched.out.splitlines()[-1])["machine"]["gpu"]
    planned = cli("plan", tiny, "--device", "cuda", "--json", "-")
    assert planned.exit_code == 0
    assert json.loads(planned.out.splitlines()[-1])["free_device_memory"] > 0
    doctor = cli("doctor", "--json", "-")
    facts = json.loads(doctor.out.splitlines()[-1])
    assert "multiprocessors" in facts["cuda:0"]
    assert "libonnxruntime.so" in facts["CUDA provider"]
    assert float(facts["cuda:0 bandwidth"].split()[0]) > 50
