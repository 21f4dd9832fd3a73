"""Compares the exported graph's logits, run by ONNX Runtime with pilotfish's operators, with torch's on real text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx_ir as ir
from tokenizers import Tokenizer

from .contract import CACHE_TYPES, HIDDEN_ROWS, aux_hidden, key_cache, value_cache
from .data_types import DATA_TYPES
from .errors import OptionError, ParityError
from .logits import Differences, compare
from .losses import Loss, LossMeter
from .parity_text import TEXT
from .reference_model import Reader, StoredWeights, torch_logits, torch_streams
from .taps_check import check_taps, tap_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from transformers import PretrainedConfig

    from .manifest import TapReference
    from .passes import Plan
    from .sources import WeightSource
    from .weights_file import StoredTensor

Array = np.ndarray[Any, np.dtype[Any]]
NUM_STEPS = 3  # graph, torch with the stored integers, torch with the original weights
_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Parity:
    """Differences of logits over the tokens of the text.

    The first four compare with torch on the same stored integers: what is left is activation rounding and the cache's
    type. The `original_` ones compare with torch on the checkpoint's weights: what quantisation costs.
    """

    max_difference: float
    mean_difference: float
    kl: float  # nats a token, torch against the graph
    top1_agreement: float
    original_max_difference: float
    original_mean_difference: float
    original_kl: float
    original_top1_agreement: float
    weights_kl: float  # torch on the checkpoint's weights against torch on the stored ones: of the weights alone
    weights_top1_agreement: float
    num_tokens: float


@dataclass(frozen=True, slots=True)
class ParityResult:
    """What the check found."""

    parity: Parity
    losses: tuple[Loss, ...]  # empty where the stored weights are the checkpoint's
    tap_reference: TapReference | None


@dataclass(frozen=True, slots=True)
class _Tolerance:
    kl: float
    original_kl: float


# Set a few times above what SmolLM2-135M shows, so that a wrong layer fails and a rounding difference does not.
_TOLERANCES = {
    "int4": _Tolerance(0.05, 1.5),
    "int4_asym": _Tolerance(0.05, 1.0),
    "int8": _Tolerance(0.05, 0.1),
    "f16": _Tolerance(1e-3, 1e-3),
    "f32": _Tolerance(1e-3, 1e-3),
}
_REREAD_KL = 1e-6  # between two readings of the same weights, in f32
_REREAD_TOKENS = 64  # of the text, by which they are compared


class SecondReading(Protocol):
    """A checkpoint that is read and computed by another way than the exporter's."""

    def logits(self, ids: Sequence[int]) -> Array:
        """Logits f32 [num_tokens, vocab_size] of one causal pass."""


def check_parity(
    graph: Path,
    weights: Path,
    plan: Plan,
    tensors: tuple[StoredTensor, ...],
    *,
    config: PretrainedConfig,
    source: WeightSource,
    ids: list[int],
    cache_dtype: str,
    taps: tuple[int, ...] = (),
    reread: SecondReading | None = None,
    advance: Callable[[], None],
) -> ParityResult:
    """Runs `ids` three times and compares; with taps, gives torch's values there as a reference.

    reread: where the checkpoint's own logits come from; None: from torch on what the exporter reads.

    Raises:
        ParityError: KL over the tolerance of the coarsest format or cache, or two readings of the checkpoint that
            differ; the message has the number and the limit.
        OptionError: onnxruntime or pilotfish's library is not installed.
    """
    exported, *streams = graph_outputs(graph, ids, cache_dtype, ["logits", *map(aux_hidden, taps)])
    advance()
    stored = StoredWeights(plan, {weights: tensors}, source.read)
    same, expected_streams = torch_streams(config, stored.read, stored.read_head, ids)
    del stored  # which keeps the last matrix
    check_taps(graph.stem, dict(zip(taps, streams, strict=True)), expected_streams)
    advance()
    meter = LossMeter(plan, source, weights, tensors)
    original, of_weights = _original(graph.stem, plan, same, config=config, read=meter.read, reread=reread, ids=ids)
    advance()
    parity = Parity(*compare(same, exported), *compare(original, exported), *of_weights[2:], float(len(ids)))
    formats = {weight.format for weight in plan.weights.values()}
    check_integers(graph.stem, parity, formats, cache_dtype)
    limit = max(CACHE_TYPES[cache_dtype].most_kl, *(_TOLERANCES[item].original_kl for item in formats))
    _check(graph.stem, "the original weights", parity.original_kl, limit)
    return ParityResult(parity, meter.losses(), tap_reference(ids, taps, expected_streams) if taps else None)


def _original(
    name: str,
    plan: Plan,
    same: Array,
    *,
    config: PretrainedConfig,
    read: Reader,
    reread: SecondReading | None,
    ids: list[int],
) -> tuple[Array, Differences]:
    """The checkpoint's own logits, and how `same` differs. Where a second reading gives them, it is compared.

    Stored weights that already give the same logits show that all was read right. Where quantisation has changed them,
    torch runs once more on what the exporter reads.
    """

    def scored(logits: Array) -> Array:
        return logits if plan.logit_ids is None else logits[:, list(plan.logit_ids)]

    if reread is None:
        original = scored(torch_logits(config, read, read, ids))
        return original, compare(original, same)
    original = scored(reread.logits(ids))
    of_weights = compare(original, same)
    if not of_weights[2] <= _REREAD_KL:
        first = ids[:_REREAD_TOKENS]
        kl = compare(original[: len(first)], scored(torch_logits(config, read, read, first)))[2]
        if not kl <= _REREAD_KL:
            raise ParityError(
                f"{name}'s checkpoint gives other logits when it is read by another way: KL {kl:.4g} nats a token, the "
                f"limit is {_REREAD_KL:g}; its metadata or tensors are not understood, please report the file"
            )
    return original, of_weights


def parity_ids(tokenizer_json: str, num_tokens: int) -> list[int]:
    """The built-in text's first tokens."""
    return Tokenizer.from_str(tokenizer_json).encode(TEXT).ids[:num_tokens]


def graph_logits(graph: Path, ids: list[int], cache_dtype: str) -> Array:
    """Logits f32 [num_tokens, num_logits] of the exported graph, see `graph_outputs`."""
    return graph_outputs(graph, ids, cache_dtype, ["logits"])[0]


def graph_outputs(
    graph: Path, ids: list[int], cache_dtype: str, names: list[str], rows: Mapping[str, Array] | None = None
) -> list[Array]:
    """Outputs of the exported graph at every token, in two passes so that the cache is read back.

    rows: further inputs, with a row for each token.
    """
    run = PagedRun(graph, len(ids), cache_dtype)
    split = 2 * len(ids) // 3
    passes = [run.outputs(ids, span, names, rows or {}) for span in ((0, split), (split, len(ids)))]
    return [np.concatenate(parts) for parts in zip(*passes, strict=True)]


class PagedRun:
    """A graph with caches for one sequence, which is run pass after pass."""

    def __init__(self, graph: Path, num_tokens: int, cache_dtype: str) -> None:
        self._session = _session(graph)
        self._caches = {}
        num_blocks = -(-num_tokens // _BLOCK_SIZE)
        cache_type = DATA_TYPES[CACHE_TYPES[cache_dtype].element].numpy()
        for port in self._session.get_inputs():
            if port.name.startswith((key_cache(0)[:-1], value_cache(0)[:-1])):
                shape = (num_blocks, _BLOCK_SIZE, *port.shape[2:])
                self._caches[port.name] = np.zeros(shape, dtype=cache_type)

    def outputs(
        self, ids: list[int], span: tuple[int, int], names: list[str], rows: Mapping[str, Array]
    ) -> list[Array]:
        """Outputs at rows start..end of the sequence, whose earlier rows have been run."""
        return _run(self._session, self._caches, _pass_inputs(self._caches, ids, span, rows), names)

    def logits(self, ids: list[int], span: tuple[int, int]) -> Array:
        """Logits f32 of these rows."""
        return self.outputs(ids, span, ["logits"], {})[0]


def _session(graph: Path) -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as the native library does
    try:
        import onnxruntime as ort  # type: ignore[import-untyped]  # noqa: PLC0415 - only this check runs graphs

        from pilotfish.bindings import library_path  # noqa: PLC0415
    except ImportError as error:
        remedy = "pip install 'pilotfish[cpu,export]', or turn the check off"
        raise OptionError(f"the parity check needs {error.name}: {remedy}") from error
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # what is checked is what runs, as in
    options.intra_op_num_threads = 1  # the native library
    options.register_custom_ops_library(str(library_path()))
    return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def run_rows(graph: Path, inputs: Mapping[str, Array], names: list[str]) -> list[Array]:
    """Outputs of a graph without a cache."""
    return _run(_session(graph), {}, inputs, names)


def _pass_inputs(
    caches: dict[str, Array], ids: list[int], span: tuple[int, int], rows: Mapping[str, Array]
) -> dict[str, Array]:
    """One pass over rows start..end of the sequence."""
    start, end = span
    num_rows = end - start
    num_blocks = next(iter(caches.values())).shape[0]
    inputs = {
        "input_ids": np.array(ids[start:end], dtype=np.int32),
        "position_ids": np.arange(start, end, dtype=np.int32),
        "seq_starts": np.array([0, num_rows], dtype=np.int32),
        "context_lens": np.array([start], dtype=np.int32),
        "block_table": np.arange(num_blocks, dtype=np.int32)[None],
        "tree_mask": np.zeros(0, dtype=np.uint64),
        "output_rows": np.arange(num_rows, dtype=np.int32),
        HIDDEN_ROWS.name: np.arange(num_rows, dtype=np.int32),
    }
    return inputs | {name: np.ascontiguousarray(values[start:end]) for name, values in rows.items()}


def _run(session: Any, caches: dict[str, Array], inputs: Mapping[str, Array], names: list[str]) -> list[Array]:
    """One pass; the caches are bound, so the operator writes into them."""
    ports = {port.name for port in (*session.get_inputs(), *session.get_overridable_initializers())}
    binding = session.io_binding()
    for name, value in {**inputs, **caches}.items():
        if name in ports:
            kind = int(ir.DataType.from_numpy(value.dtype))
            binding.bind_input(name, "cpu", 0, kind, value.shape, value.ctypes.data)
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    return [np.asarray(output) for output in binding.copy_outputs_to_cpu()]


def check_integers(name: str, parity: Parity, formats: set[str], cache_dtype: str) -> None:
    """Whether the graph computes what torch does with the stored integers, by the coarsest part's tolerance.

    Raises:
        ParityError: KL over it.
    """
    limit = max(CACHE_TYPES[cache_dtype].most_kl, *(_TOLERANCES[item].kl for item in formats))
    _check(name, "the same integers", parity.kl, limit)


def _check(name: str, reference: str, kl: float, limit: float) -> None:
    if not kl <= limit:  # also catches not-a-number
        raise ParityError(
            f"{name} differs from torch on {reference}: KL {kl:.4g} nats a token, the limit is {limit:g}; "
            "try a finer weight format, or turn the parity check off"
        )
