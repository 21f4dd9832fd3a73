"""Several generations at once against one after the other: tokens a second of all together, and that no token differs.

    python samples/bench_batch.py BUNDLE [--prompts PROMPTS.jsonl] [--together 1 2 4 8] [--threads N] [--device cuda]

Prompts are read once beforehand, so that decoding is what is timed. Medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pilotfish import Engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotfish import Result

Value = TypeVar("Value")

PROMPTS = (
    "Give me three tips for writing clear code.",
    "Why is the sky blue?",
    "Write a short poem about the sea.",
    "What is the capital of France, and what is it known for?",
    "Explain how a bicycle stays upright.",
    "List five uses for an old newspaper.",
    "What should I cook with rice, eggs and spinach?",
    "How do vaccines work?",
)


def read_prompts(engine: Engine, file: Path | None, count: int) -> list[list[int]]:
    """As token ids of conversations, as many as are wanted: from the first again where there are fewer."""
    texts = [json.loads(line)["prompt"] for line in file.read_text().splitlines()] if file else list(PROMPTS)
    texts = [texts[index % len(texts)] for index in range(count)]
    return [engine.encode_chat([{"role": "user", "content": text}]) for text in texts]


def timed(call: Callable[[], Value]) -> tuple[Value, float]:
    """What a call gives, and its seconds."""
    start = time.perf_counter()
    value = call()
    return value, time.perf_counter() - start


def main() -> None:
    """Print a line for each source and number of generations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--prompts", type=Path, help='JSON lines with "prompt"')
    parser.add_argument("--together", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sources", nargs="+", default=["plain", "auto"])
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    most = max(asked.together)
    speeds: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    with Engine(
        asked.bundle, threads=asked.threads, device=asked.device, num_sequences=most, max_context=1024
    ) as engine:
        prompts = read_prompts(engine, asked.prompts, most)
        engine.generate_batch(prompts, max_new_tokens=1)
        for _ in range(asked.rounds):
            for source in asked.sources:
                for count in asked.together:

                    def one_by_one(source: str = source, count: int = count) -> list[Result]:
                        options = {"max_new_tokens": asked.new_tokens, "ignore_eos": True}
                        return [engine.generate(ids, source=source, **options) for ids in prompts[:count]]

                    def together(source: str = source, count: int = count) -> list[Result]:
                        options = {"max_new_tokens": asked.new_tokens, "ignore_eos": True}
                        return engine.generate_batch(prompts[:count], source=source, **options)

                    alone, seconds_alone = timed(one_by_one)
                    shared, seconds_shared = timed(together)
                    if [each.token_ids for each in alone] != [each.token_ids for each in shared]:
                        raise SystemExit(f"{source}, {count} together: other tokens than alone")
                    num_tokens = count * asked.new_tokens
                    speeds[source, count, "alone"].append(num_tokens / seconds_alone)
                    speeds[source, count, "together"].append(num_tokens / seconds_shared)
    print(f"{'source':8} {'together':>8} {'one by one':>12} {'together':>12}  tokens/s of all")
    for source in asked.sources:
        for count in asked.together:
            alone_speed = statistics.median(speeds[source, count, "alone"])
            shared_speed = statistics.median(speeds[source, count, "together"])
            ratio = f"{shared_speed / alone_speed:.2f}x"
            print(f"{source:8} {count:8} {alone_speed:12.0f} {shared_speed:12.0f}  {ratio}")


if __name__ == "__main__":
    main()
