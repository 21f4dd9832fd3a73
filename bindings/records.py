"""The C API's structs and enums as Python values. Units and meanings are pilotfish.h's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from . import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Progress = Callable[["LoadStage", int, int], object]
    """Called with the stage, and with how many bytes of weights of how many have been read."""


class Device(IntEnum):
    """Where the models run."""

    CPU = 0
    CUDA = 1


class Model(IntEnum):
    """A model of the bundle."""

    TARGET = 0
    DRAFT = 1
    HEAD = 2
    """Has costs only: the first pass of a round's drafting."""


class Origin(IntEnum):
    """How a token came to be emitted."""

    PLAIN = 0
    ACCEPTED = 1
    CORRECTED = 2
    BONUS = 3
    PROMPT = 4


class DraftSource(IntEnum):
    """Where the tokens of a round's draft come from."""

    AUTO = 0
    PLAIN = 1
    MODEL = 2
    LOOKUP = 3
    LOOKUP_MODEL = 4
    HEAD = 5
    LOOKUP_HEAD = 6


class Calibration(IntEnum):
    """Whether the costs of passes are measured at load."""

    OFF = 0
    KEPT = 1
    REFRESH = 2


class Acceptance(IntEnum):
    """When a drafted token is kept where decoding samples."""

    EQUAL = 0
    REJECTION = 1


class VerifyHashes(IntEnum):
    """Whether hashes of a bundle's files are compared with the manifest's."""

    ALWAYS = 0
    NEVER = 1


class LoadStage(IntEnum):
    """What a load does, in this order."""

    READING = 0
    MEASURING = 1
    RECORDING = 2


class Reason(IntEnum):
    """Why a round drafted what it did."""

    BEST = 0
    PROBE = 1
    PINNED = 2


class Finish(IntEnum):
    """Why a request ended; NONE while it runs."""

    NONE = 0
    EOS = 1
    STOP = 2
    LENGTH = 3
    CONTEXT = 4
    CANCELLED = 5


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """pf_engine_options; None keeps the library's default."""

    ort_library: str
    device: Device = Device.CPU
    num_threads: int | None = None
    max_context: int | None = None
    max_draft_tokens: int | None = None
    prefill_chunk: int | None = None
    max_wait_ms: int | None = None
    num_sequences: int | None = None
    memory_budget_bytes: int | None = None
    calibration: Calibration | None = None
    calibration_folder: str | None = None
    draft_window: int | None = None
    lookup_store: str | None = None
    lookup_store_bytes: int | None = None
    device_index: int | None = None
    acceptance: Acceptance | None = None
    verify_hashes: VerifyHashes | None = None
    program_bytes: int | None = None
    progress: Progress | None = None
    """What it raises ends the load, and is raised by it."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """pf_engine_info: what was loaded, or what the plan would load. Sizes are in bytes."""

    has_draft: bool
    vocab_size: int
    """Logits of the target at a position."""
    max_context: int
    """Tokens of prompt and output together."""
    num_threads: int
    """Threads of a pass."""
    block_size: int
    """Tokens of a cache block."""
    num_blocks: int
    """Cache blocks of each model."""
    num_free_blocks: int
    """Cache blocks that are neither retained nor booked by a generation."""
    target_weight_bytes: int
    draft_weight_bytes: int
    target_cache_bytes: int
    draft_cache_bytes: int
    activation_bytes: int
    """Of the widest pass, logits included."""
    runtime_bytes: int
    """Of ONNX Runtime and this library; on a GPU of the driver's context with their part of it."""
    total_bytes: int
    num_retained_blocks: int
    """Cache blocks that are kept for prompts that begin like an earlier one, and free as soon as one is needed."""
    is_calibrated: bool
    """The costs of passes were measured, at this load or at an earlier one."""
    lookup_bytes: int
    """Of the indexes of sequences and of the lookup store."""
    has_head: bool
    head_weight_bytes: int
    head_cache_bytes: int
    free_device_memory: int
    """Of the GPU before anything was loaded; 0 where no GPU was asked for, or found."""
    prefill_chunk: int
    """Tokens of a prompt that a pass takes at most."""
    program_bytes: int
    """Of the process beside the library: Python, and what else it has loaded; 0 on a GPU."""
    target_streamed_bytes: int
    """Of the target's weights that there is no room for; not in ``total_bytes``. On a GPU they stay in page-locked host
    memory and come to the GPU in every pass, through room that ``target_weight_bytes`` has. On the CPU passes read them
    from the mapped file, whose pages the system keeps where it has memory for them; the file must not be changed then
    while the engine is open."""


@dataclass(frozen=True, slots=True)
class CudaInfo:
    """pf_cuda_info: a GPU, and what this build has for it."""

    num_devices: int
    compute_capability: int
    num_multiprocessors: int
    driver_version: int
    build_version: int
    total_bytes: int
    free_bytes: int
    read_bytes_per_second: float
    name: str
    architectures: str
    has_provider_kernels: bool
    """Whether those of the ONNX Runtime that was asked about run on it; False where none was."""


@dataclass(frozen=True, slots=True)
class Mask:
    """pf_mask_callback: which ids may follow."""

    fill: Callable[[Sequence[int], NDArray[np.uint32]], None]
    """Called with the ids drafted after the tokens that steps have returned, and ceil(num_ids / 32) words, all zero:
    sets bit i % 32 of word i // 32 for every id i that may come next. What it raises fails the step."""
    num_ids: int
    """Ids of the tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """pf_generate_options."""

    numbers: Mapping[str, float]
    """The struct's numbers and flags by their names there; one that is not named has the library's default."""
    stop_ids: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    mask: Mask | None = None

    def __getattr__(self, name: str) -> Any:
        """One of the numbers."""
        try:
            return self.numbers[name] if name in self.numbers else getattr(limits.GENERATE, name)
        except AttributeError:
            raise AttributeError(f"pf_generate_options has no number {name!r}") from None

    @property
    def most_tokens(self) -> int:
        """Tokens that a round may write."""
        if self.num_draft_tokens == limits.AS_MANY_AS_PAY:
            return limits.MOST_DRAFT_TOKENS + 1
        return int(max(self.num_draft_tokens, self.tree_depth)) + 1


class Token(NamedTuple):
    """pf_token: one emitted token."""

    id: int
    origin: Origin
    logprob: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestStats:
    """pf_stats: the counters of one request."""

    num_prompt_tokens: int
    num_new_tokens: int
    num_rounds: int
    num_drafted: int
    num_accepted: int
    prefill_seconds: float
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    lossy: bool
    num_prefilled_target: int
    num_prefilled_draft: int
    num_lookup_rounds: int
    num_lookup_drafted: int
    num_lookup_accepted: int
    num_model_rounds: int
    num_model_drafted: int
    num_model_accepted: int
    num_probe_rounds: int
    num_head_rounds: int
    num_head_drafted: int
    num_head_accepted: int
    counted_seconds: float
    num_device_rounds: int
    num_failed_drafts: int


class Decision(NamedTuple):
    """pf_decision: what the last round was to draft, and what was expected of it."""

    reason: Reason
    num_lookup: int
    num_model: int
    expected_tokens: float
    expected_seconds: float
    num_head: int
    num_levels: int
    num_passes: int
    num_verified: int
    ranks: tuple[int, ...]
    """Of the accepted tokens; -1: drawn or found by lookup."""
