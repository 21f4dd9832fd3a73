"""One typed function a C function. Python outside this package sees ints, strings, arrays, records and exceptions.

cffi drops the GIL during every call, so other Python threads run; a handle still serves one thread at a time.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .errors import CallbackFailedError, InvalidArgumentError, PilotfishError
from .handle import EngineHandle, RequestHandle, begin_step, check_outside_of_steps, end_step
from .library import ffi, lib
from .progress import ProgressCall
from .records import (
    CudaInfo,
    Decision,
    EngineInfo,
    EngineOptions,
    Finish,
    Model,
    Origin,
    Reason,
    RequestOptions,
    RequestStats,
    Token,
)
from .request_options import RequestStruct
from .status import check, exception

if TYPE_CHECKING:
    from numpy.typing import NDArray

Record = TypeVar("Record", EngineInfo, RequestStats)

_ORIGINS = tuple(Origin)
_ORT_VERSION_BYTES = 64
_FLAGS = ("has_draft", "has_head", "lossy", "is_calibrated")
_PATHS = ("ort_library", "calibration_folder", "lookup_store")
_INT4_BLOCK = 32  # weights that share a scale
_ECHO_CAPACITY = 64  # the engine takes fewer rows a pass if its own limit is lower


def version() -> str:
    """Version of the loaded libpilotfish."""
    return _text(lib.pf_version())


def header_version() -> str:
    """PF_VERSION of the header this package was built from."""
    return _text(lib.PF_VERSION)


def cpu_kernels() -> str:
    """Instruction set whose kernels run on this machine.

    "avx512vnni", "avx2" or "portable"; on 64-bit Arm "i8mm", "dotprod", "neon" or "portable".

    Raises:
        InvalidArgumentError: the environment variable PILOTFISH_CPU asks for one that this machine lacks.
    """
    name = lib.pf_cpu_kernels()
    if name == ffi.NULL:
        raise InvalidArgumentError(_text(lib.pf_last_error()))
    return _text(name)


def best_cpu_kernels() -> str:
    """The fastest kernels for this processor, which run unless PILOTFISH_CPU says otherwise."""
    return _text(lib.pf_best_cpu_kernels())


def cpu_name() -> str:
    """The processor, as its maker calls it."""
    return _text(lib.pf_cpu_name())


def cpu_cores() -> int:
    """Threads that an engine takes by default: physical cores, or fewer where a container's CPU quota is less."""
    return int(lib.pf_cpu_cores())


def ort_version(ort_library: str) -> str:
    """Version of the ONNX Runtime library at a path."""
    buffer = ffi.new("char[]", _ORT_VERSION_BYTES)
    check(lib.pf_ort_version(os.fsencode(ort_library), buffer, _ORT_VERSION_BYTES))
    return _text(buffer)


def cuda_info(device_index: int, *, measure: bool, ort_library: str | None = None) -> CudaInfo:
    """A GPU; its bandwidth takes some milliseconds to measure and is 0 otherwise.

    Raises:
        OnnxRuntimeMissingError: why the ONNX Runtime at `ort_library` cannot run on it.
    """
    info = ffi.new("pf_cuda_info*")
    library = ffi.NULL if ort_library is None else os.fsencode(ort_library)
    check(lib.pf_cuda_describe(device_index, library, int(measure), info))
    values = {field.name: getattr(info, field.name) for field in fields(CudaInfo)}
    values |= {name: _text(values[name]) for name in ("name", "architectures")}
    return CudaInfo(**(values | {"has_provider_kernels": bool(values["has_provider_kernels"])}))


def fit_int4_scales(blocks: NDArray[np.float32], candidates: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale of least squared error of each block: [..., 32] -> [...], among those that the candidates lead to.

    Raises:
        InvalidArgumentError: blocks that are not of 32 weights.
    """
    if blocks.shape[-1] != _INT4_BLOCK:
        raise InvalidArgumentError(f"blocks are {blocks.shape}, the last axis must be {_INT4_BLOCK}")
    scales = np.empty(blocks.shape[:-1], dtype=np.float32)
    blocks_view = ffi.from_buffer("float[]", np.ascontiguousarray(blocks, dtype=np.float32))
    candidates_view = ffi.from_buffer("float[]", candidates)
    scales_view = ffi.from_buffer("float[]", scales, require_writable=True)
    check(lib.pf_fit_int4_scales(blocks_view, scales.size, candidates_view, len(candidates), scales_view))
    return scales


def engine_open(bundle: str, options: EngineOptions) -> EngineHandle:
    """Check and load the bundle folder. What options.progress raises ends the load and is raised."""
    out = ffi.new("pf_engine**")
    struct, _keep_alive = _engine_options(options)
    progress = None if options.progress is None else ProgressCall(options.progress)
    if progress is not None:
        struct.progress, struct.progress_user = progress.callback, progress.handle
    try:
        check(lib.pf_engine_open(os.fsencode(bundle), struct, out))
    except CallbackFailedError:
        if progress is None or progress.error is None:
            raise
        raise progress.error  # noqa: B904 - the other says no more than that there is one
    return EngineHandle(out[0], lib.pf_engine_close)


def plan(bundle: str, options: EngineOptions) -> EngineInfo:
    """The memory plan of engine_open, without loading."""
    info = ffi.new("pf_engine_info*", {"struct_size": ffi.sizeof("pf_engine_info")})
    struct, _keep_alive = _engine_options(options)
    check(lib.pf_plan(os.fsencode(bundle), struct, info))
    return _record(EngineInfo, info)


def engine_info(engine: EngineHandle) -> EngineInfo:
    """What was loaded, and the number of free cache blocks now.

    Raises InternalError if the caches break an invariant.
    """
    info = ffi.new("pf_engine_info*", {"struct_size": ffi.sizeof("pf_engine_info")})
    check(lib.pf_engine_get_info(engine.pointer, info))
    return _record(EngineInfo, info)


def engine_logits(engine: EngineHandle, model: Model, ids: NDArray[np.int32], vocab_size: int) -> NDArray[np.float32]:
    """Logits of every position of ids: [num_ids, vocab_size]."""
    logits = np.empty((len(ids), vocab_size), dtype=np.float32)
    ids_view = ffi.from_buffer("int32_t[]", np.ascontiguousarray(ids, dtype=np.int32))
    logits_view = ffi.from_buffer("float[]", logits, require_writable=True)
    check(lib.pf_engine_logits(engine.pointer, model, ids_view, len(ids), logits_view))
    return logits


def engine_time_pass(
    engine: EngineHandle, model: Model, num_rows: int, context: int, num_repeats: int
) -> NDArray[np.float64]:
    """Seconds of each of num_repeats passes of num_rows rows after context committed tokens."""
    seconds = np.empty(num_repeats, dtype=np.float64)
    view = ffi.from_buffer("double[]", seconds, require_writable=True)
    check(lib.pf_engine_time_pass(engine.pointer, model, num_rows, context, num_repeats, view))
    return seconds


def engine_cost(engine: EngineHandle, model: Model, num_rows: int, context: int) -> float:
    """Seconds that a pass is taken to cost when a round is planned."""
    seconds = ffi.new("double*")
    check(lib.pf_engine_get_cost(engine.pointer, model, num_rows, context, seconds))
    return float(seconds[0])


def engine_save_lookup(engine: EngineHandle) -> None:
    """Write the lookup store's file if outputs were added since."""
    check(lib.pf_engine_save_lookup(engine.pointer))


def engine_save_session(engine: EngineHandle, path: str, ids: NDArray[np.int32], note: bytes) -> int:
    """Save a conversation with what is cached of its beginning, and return of how many tokens."""
    num_tokens = ffi.new("int32_t*")
    ids_view = ffi.from_buffer("int32_t[]", np.ascontiguousarray(ids, dtype=np.int32))
    check(
        lib.pf_engine_save_session(
            engine.pointer,
            os.fsencode(path),
            ids_view,
            len(ids),
            ffi.from_buffer("char[]", note),
            len(note),
            num_tokens,
        )
    )
    return int(num_tokens[0])


def engine_load_session(engine: EngineHandle, path: str) -> tuple[list[int], int, bytes]:
    """What a file of engine_save_session() holds: token ids, how many of them are cached now, and the note."""
    out = ffi.new("pf_session**")
    check(lib.pf_engine_load_session(engine.pointer, os.fsencode(path), out))
    try:
        size = ffi.new("size_t*")
        ids_pointer = lib.pf_session_ids(out[0], size)
        ids = [int(each) for each in ffi.unpack(ids_pointer, size[0])] if size[0] > 0 else []
        note_pointer = lib.pf_session_note(out[0], size)
        note = bytes(ffi.buffer(note_pointer, size[0]))
        return ids, int(lib.pf_session_num_cached(out[0])), note
    finally:
        lib.pf_session_close(out[0])


def request_open(engine: EngineHandle, ids: NDArray[np.int32], options: RequestOptions) -> RequestHandle:
    """Reserve cache blocks for the prompt and its continuation."""
    out = ffi.new("pf_request**")
    struct = RequestStruct(options)
    ids_view = ffi.from_buffer("int32_t[]", np.ascontiguousarray(ids, dtype=np.int32))
    check(lib.pf_request_open(engine.pointer, ids_view, len(ids), struct.pointer, out))
    capacity = max(options.most_tokens, _ECHO_CAPACITY if options.echo else 0)
    return RequestHandle(
        out[0],
        lib.pf_request_close,
        capacity=capacity,
        num_top_logprobs=options.num_top_logprobs,
        mask=struct.mask,
    )


def request_step(request: RequestHandle) -> tuple[list[Token], Finish]:
    """Run one round, the first call prefill before it: its tokens, and why the request ended if it did."""
    check_outside_of_steps()
    request.num_tokens[0] = 0  # a step that fails writes none
    try:
        begin_step()
        check(
            lib.pf_request_step(request.pointer, request.tokens, request.capacity, request.num_tokens, request.finish)
        )
    except CallbackFailedError as failure:
        raise _failure_of_mask(request, failure)  # noqa: B904 - it has its cause
    finally:
        end_step()
    return _step_result(request)


def step_together(requests: list[RequestHandle]) -> list[tuple[list[Token], Finish] | PilotfishError]:
    """request_step() of each, in passes that they share; its error in place of what a failed one gives.

    Raises InvalidArgumentError if they are not different requests of one engine.
    """
    check_outside_of_steps()
    steps = ffi.new("pf_step[]", len(requests))
    for step, request in zip(steps, requests, strict=True):
        step.request, step.tokens_out, step.capacity = request.pointer, request.tokens, request.capacity
    try:
        begin_step()
        check(lib.pf_step_together(steps, len(requests)))
        return _outcomes(requests, steps)
    finally:
        end_step()  # not before what they failed with was read


def _outcomes(requests: list[RequestHandle], steps: Any) -> list[tuple[list[Token], Finish] | PilotfishError]:
    outcomes: list[tuple[list[Token], Finish] | PilotfishError] = []
    for step, request in zip(steps, requests, strict=True):
        request.num_tokens[0] = step.num_tokens
        if step.status != lib.PF_OK:
            error: BaseException = exception(step.status, step.error)
            if isinstance(error, CallbackFailedError):
                error = _failure_of_mask(request, error)
            if not isinstance(error, PilotfishError):  # an interrupt
                raise error
            outcomes.append(error)
            continue
        request.finish[0] = step.finish
        outcomes.append(_step_result(request))
    return outcomes


def _failure_of_mask(request: RequestHandle, failure: PilotfishError) -> BaseException:
    """What to raise where the mask failed: what its function raised, with CallbackFailedError around foreign errors."""
    error = request.mask.error if request.mask else None
    if isinstance(error, PilotfishError) or (error is not None and not isinstance(error, Exception)):
        return error
    failure.__cause__ = error
    return failure


def _step_result(request: RequestHandle) -> tuple[list[Token], Finish]:
    tokens = [
        Token(token.id, _ORIGINS[token.origin], token.logprob, token.seconds)
        for token in request.tokens[0 : request.num_tokens[0]]
    ]
    return tokens, Finish(request.finish[0])


def request_top_logprobs(request: RequestHandle) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Likeliest ids at each token of the last step and their logprobs: [num_tokens, num_top_logprobs]."""
    shape = (int(request.num_tokens[0]), request.num_top_logprobs)
    ids = np.empty(shape, dtype=np.int32)
    logprobs = np.empty(shape, dtype=np.float32)
    ids_view = ffi.from_buffer("int32_t[]", ids, require_writable=True)
    logprobs_view = ffi.from_buffer("float[]", logprobs, require_writable=True)
    check(lib.pf_request_get_top_logprobs(request.pointer, ids_view, logprobs_view))
    return ids, logprobs


def request_stop(request: RequestHandle, num_tokens: int) -> None:
    """End the request after the first num_tokens of the last step: the rest was never emitted."""
    check_outside_of_steps()
    check(lib.pf_request_stop(request.pointer, num_tokens))
    request.num_tokens[0] = num_tokens


def request_cancel(request: RequestHandle) -> None:
    """Ask the request to end within one round. Any thread; nothing happens once it is closed."""
    request.cancel(lib.pf_request_cancel)


def request_stats(request: RequestHandle) -> RequestStats:
    """The request's counters so far."""
    stats = ffi.new("pf_stats*", {"struct_size": ffi.sizeof("pf_stats")})
    check(lib.pf_request_get_stats(request.pointer, stats))
    return _record(RequestStats, stats)


def request_decision(request: RequestHandle) -> Decision:
    """What the last round was to draft."""
    struct = ffi.new("pf_decision*", {"struct_size": ffi.sizeof("pf_decision")})
    check(lib.pf_request_get_decision(request.pointer, struct))
    values = {name: getattr(struct, name) for name in Decision._fields}
    ranks = tuple(struct.ranks[0 : struct.num_accepted])
    return Decision(**(values | {"reason": Reason(struct.reason), "ranks": ranks}))


def _engine_options(options: EngineOptions) -> tuple[Any, Any]:
    """The C struct, and the strings it points to, which must live as long."""
    struct = ffi.new("pf_engine_options*")
    lib.pf_engine_options_init(struct)
    strings = []
    for field in fields(options):
        value = getattr(options, field.name)
        if value is None or field.name == "progress":  # which is engine_open's
            continue
        if field.name in _PATHS:
            strings.append(ffi.new("char[]", os.fsencode(value)))
            value = strings[-1]
        setattr(struct, field.name, value if field.name in _PATHS else int(value))
    return struct, strings


def _record(record: type[Record], struct: Any) -> Record:
    values = {field.name: getattr(struct, field.name) for field in fields(record)}
    values |= {name: bool(values[name]) for name in _FLAGS if name in values}
    return record(**values)


def _text(pointer: Any) -> str:
    return str(ffi.string(pointer).decode("utf-8", errors="replace"))
