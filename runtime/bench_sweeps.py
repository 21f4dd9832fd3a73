"""What a benchmark measures beside its prompts: speed by length of the context, and several generations at once."""

from __future__ import annotations

import re
import statistics
import time
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import InvalidArgumentError, PilotfishError

from .bench_passes import VERIFY_ROWS
from .bench_prompts import fixed_ids
from .bench_statistics import median_interval, percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .bench import Prompt
    from .engine import Engine
    from .options import GenerateKeywords
    from .token_stream import TokenStream

_LENGTH = re.compile(r"[0-9]{1,18}")
_REPEATS = 3
_SEQUENCE_TURNS = 5


def parse_contexts(text: str | None, max_context: int, new_tokens: int) -> tuple[int, ...]:
    """The lengths of a list such as "128,1024", each once; none of None.

    Raises:
        InvalidArgumentError: a length that is no number above 0, or leaves no room in the context.
    """
    lengths = []
    for part in text.split(",") if text is not None else ():
        if not _LENGTH.fullmatch(part.strip()) or int(part) < 1:
            raise InvalidArgumentError(f"--context has {part!r:.40}, must be numbers of tokens, as 128,1024")
        if int(part) + max(new_tokens, *VERIFY_ROWS) > max_context:
            raise InvalidArgumentError(
                f"--context {int(part)} and --new-tokens {new_tokens} do not fit the context of {max_context} tokens"
            )
        lengths.append(int(part))
    return tuple(dict.fromkeys(lengths))


def sweep_contexts(
    engine: Engine, lengths: Sequence[int], new_tokens: int, common: GenerateKeywords
) -> list[dict[str, Any]]:
    """Plain decoding after prompts of these lengths, which take turns, and passes over some rows there."""
    prompts = {length: fixed_ids(engine, length) for length in lengths}
    times: dict[int, list[tuple[float, float]]] = {length: [] for length in lengths}
    options: GenerateKeywords = common | {
        "max_new_tokens": new_tokens,
        "num_draft_tokens": 0,
        "ignore_eos": True,
        "reuse_prefix": False,
    }
    for _ in range(_REPEATS):
        for length, ids in prompts.items():
            with engine.stream(ids, **options) as stream:
                start = time.perf_counter()
                next(stream)
                first = time.perf_counter()
                num_tokens = sum(1 for _ in stream)
                times[length].append((first - start, num_tokens / (time.perf_counter() - first)))
    return [
        {
            "context": length,
            "ttft_ms": 1e3 * statistics.median(first for first, _ in times[length]),
            "tokens_per_s": statistics.median(speed for _, speed in times[length]),
            "verify_ms": {
                str(rows): 1e3
                * statistics.median(engine.time_pass(rows, context=length, num_repeats=_REPEATS).tolist())
                for rows in VERIFY_ROWS
            },
        }
        for length in lengths
    ]


def measure_together(
    engine: Engine,
    prompts: Sequence[Prompt],
    num_sequences: int,
    new_tokens: int,
    modes: Mapping[str, GenerateKeywords],
) -> list[dict[str, Any]]:
    """So many generations at once, the modes in turn: tokens a second in all, and the gaps that each one's reader sees.

    Every generation goes on to ``new_tokens``, so that all are there to the end.
    """
    found: dict[str, list[tuple[float, list[float]]]] = {mode: [] for mode in modes}
    for turn in range(_SEQUENCE_TURNS):
        chosen = [prompts[(turn * num_sequences + place) % len(prompts)] for place in range(num_sequences)]
        for mode, drafting in modes.items():
            found[mode].append(_together(engine, chosen, new_tokens, drafting))
    entries = []
    for mode, turns in found.items():
        gaps = [gap for _, each in turns for gap in each]
        speed = median_interval([speed for speed, _ in turns])
        entries.append(
            {
                "mode": mode,
                "num_sequences": num_sequences,
                "tokens_per_s": speed.median,
                "tokens_per_s_each": speed.median / num_sequences,
                "gap_ms": {"p50": percentile(gaps, 0.5), "p95": percentile(gaps, 0.95), "p99": percentile(gaps, 0.99)},
            }
        )
    return entries


def _together(
    engine: Engine, prompts: Sequence[Prompt], new_tokens: int, drafting: GenerateKeywords
) -> tuple[float, list[float]]:
    """Tokens a second in all from when every generation has its first token, and milliseconds between deliveries."""
    options: GenerateKeywords = {
        "max_new_tokens": new_tokens,
        "ignore_eos": True,
        "reuse_prefix": False,
        **drafting,
    }
    streams = [engine.stream(prompt.ids, **options) for prompt in prompts]
    try:
        last = {id(stream): 0.0 for stream in streams}
        while not all(last.values()):
            _step(engine, [stream for stream in streams if not last[id(stream)]], last)
        start, num_tokens, gaps = time.perf_counter(), 0, []
        while running := [stream for stream in streams if stream.finish_reason is None]:
            before = dict(last)
            num_tokens += _step(engine, running, last)
            gaps += [1e3 * (last[key] - since) for key, since in before.items() if last[key] != since]
        return num_tokens / (time.perf_counter() - start), gaps
    finally:
        for stream in streams:
            stream.close()


def _step(engine: Engine, streams: Sequence[TokenStream], last: dict[int, float]) -> int:
    """A round of each: notes when tokens came, and counts them."""
    errors: list[PilotfishError | None] = engine.step_together(streams)
    for error in errors:
        if error is not None:
            raise error
    num_tokens, now = 0, time.perf_counter()
    for stream in streams:
        num_new = sum(1 for _ in iter(stream.next_ready, None))
        if num_new:
            last[id(stream)] = now
        num_tokens += num_new
    return num_tokens
