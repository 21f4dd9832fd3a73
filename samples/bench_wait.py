"""How long generations wait for each other's tokens while a new prompt runs beside them.

    python samples/bench_wait.py build/smollm2                       # chunks of 256 tokens
    python samples/bench_wait.py build/smollm2 --max-wait-ms 15
    python samples/bench_wait.py build/smollm2 --rounds 1.0          # bounded by so many of their median rounds

The last line is JSON: the median round of the others with as many tokens behind them in a run without the prompt, the
gaps between their tokens while it runs, and the time to its first token, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import TYPE_CHECKING

from pilotfish import Engine

if TYPE_CHECKING:
    from pilotfish.runtime import TokenStream

NUM_RUNNING = 7
ROUNDS_BEFORE = 60


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--prompt-tokens", type=int, default=1000)
    parser.add_argument("--max-wait-ms", type=int, help="default: no bound")
    parser.add_argument("--rounds", type=float, help="the bound, in median rounds of a run without the prompt")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--source", default="plain", help="of the others")
    return parser.parse_args()


def measure(given: argparse.Namespace, max_wait_ms: int | None) -> dict[str, float]:
    """Gaps while a prompt runs beside the others, and their rounds with as many tokens behind them without it."""
    gaps, first_token = rounds(given, max_wait_ms, beside_prompt=True)
    alone, _ = rounds(given, max_wait_ms, num_rounds=len(gaps))
    gap = spread(gaps)
    ratio = spread([one / other for one, other in zip(gaps, alone, strict=True)])
    return {
        "median_round": statistics.median(alone),
        "num_chunks": len(gaps),
        **{f"{name}_gap": value for name, value in gap.items()},
        **{f"{name}_gap_in_rounds": value for name, value in ratio.items()},
        "first_token": first_token,
    }


def spread(values: list[float]) -> dict[str, float]:
    """Of the values."""
    values = sorted(values)
    return {"median": statistics.median(values), "p95": values[int(0.95 * (len(values) - 1))], "largest": values[-1]}


def rounds(
    given: argparse.Namespace, max_wait_ms: int | None, *, beside_prompt: bool = False, num_rounds: int = ROUNDS_BEFORE
) -> tuple[list[float], float]:
    """Milliseconds of rounds after the first ones: those until a new prompt's first token, or so many without it."""
    with Engine(
        given.bundle, threads=given.threads, num_sequences=NUM_RUNNING + 1, max_context=2048, max_wait_ms=max_wait_ms
    ) as engine:
        num_ids = engine.manifest.tokenizer.size
        options = {"ignore_eos": True, "reuse_prefix": False}
        others = [
            engine.stream(f"Story number {index}:", max_new_tokens=1500, source=given.source, **options)
            for index in range(NUM_RUNNING)
        ]

        def step(streams: list[TokenStream]) -> float:
            begin = time.perf_counter()
            for error in engine.step_together(streams):
                if error is not None:
                    raise error
            return 1000 * (time.perf_counter() - begin)

        while any(stream.stats.num_new_tokens == 0 for stream in others):
            step(others)
        for _ in range(ROUNDS_BEFORE):
            step(others)
        if not beside_prompt:
            return [step(others) for _ in range(num_rounds)], 0
        prompt = [(7919 * index + 13) % num_ids for index in range(given.prompt_tokens)]
        new = engine.stream(prompt, max_new_tokens=4, **options)
        begin = time.perf_counter()
        gaps = []
        while new.stats.num_new_tokens == 0:
            gaps.append(step([*others, new]))
        return gaps, 1000 * (time.perf_counter() - begin)


def main() -> None:
    """Prints the numbers."""
    given = arguments()
    bound = given.max_wait_ms
    if given.rounds is not None:
        alone, _ = rounds(given, None)
        bound = max(int(given.rounds * statistics.median(alone)), 1)
    print(json.dumps({"max_wait_ms": bound} | {key: round(value, 2) for key, value in measure(given, bound).items()}))


if __name__ == "__main__":
    main()
