"""Several generations at once against one after the other: tokens a second of all together, and that no token differs.

    python samples/bench_batch.py BUNDLE [--prompts PROMPTS.jsonl] [--together 1 2 4 8] [--threads N] [--device cuda]

Prompts are read once beforehand, so that decoding is what is timed. Medians of interleaved rounds. All have outputs of
one length, and the last one to end is waited for: `each` is what one gets on average, who may end sooner. With --count
time is not measured but counted, by what passes of the target cost here: of the draft's nothing is in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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


@dataclass(frozen=True)
class Together:
    """Generations that share passes, and when each has ended, in seconds."""

    results: list[Result]
    ends: list[float]


def run_together(engine: Engine, prompts: list[list[int]], **options: Any) -> Together:
    """As generate_batch() does."""
    with ExitStack() as stack:
        start = time.perf_counter()
        streams = [stack.enter_context(engine.prepare(ids, **options)()) for ids in prompts]
        ends: dict[int, float] = {}
        while len(ends) < len(streams):
            for error in engine.step_together([stream for stream in streams if stream.finish_reason is None]):
                if error is not None:
                    raise error
            for index, stream in enumerate(streams):
                if stream.finish_reason is not None:
                    ends.setdefault(index, time.perf_counter() - start)
        return Together([stream.result() for stream in streams], [ends[index] for index in range(len(streams))])


def count_passes(engine: Engine, prompts: list[list[int]], source: str, num_tokens: int) -> str:
    """How the target's passes with a source are to plain ones: until all have ended, until the first has, and each."""
    options: dict[str, Any] = {"max_new_tokens": num_tokens, "ignore_eos": True, "source": source, "explain": True}
    results = engine.generate_batch(prompts, **options)
    context = len(prompts[0]) + num_tokens // 2
    num_rounds = [len(result.rounds) for result in results]
    seconds, num_given, ends, until_first = 0.0, 0, [], 0.0
    for number in range(max(num_rounds)):
        running = [result.rounds[number] for result in results if len(result.rounds) > number]
        seconds += engine.pass_cost(sum(1 + each.num_verified for each in running), context=context)
        num_given += sum(each.num_tokens for each in running)
        ends += [seconds] * num_rounds.count(number + 1)
        if ends and not until_first:
            until_first = num_given / seconds
    plain = engine.pass_cost(len(prompts), context=context)
    whole = plain * (num_tokens - 1)
    num_drafted = sum(each.num_passes > 0 for result in results for each in result.rounds)
    return (
        f"{source:8} {len(prompts):8} {whole / seconds:8.3f} {until_first * plain / len(prompts):8.3f} "
        f"{whole / statistics.mean(ends):8.3f}  {num_drafted} of {sum(num_rounds)} rounds ran a draft"
    )


def measure(engine: Engine, prompts: list[list[int]], source: str, num_tokens: int) -> dict[str, float]:
    """Tokens a second of all, one by one and together, and of each then."""
    options: dict[str, Any] = {"max_new_tokens": num_tokens, "ignore_eos": True, "source": source}
    alone, seconds_alone = timed(lambda: [engine.generate(ids, **options) for ids in prompts])
    shared, seconds_shared = timed(lambda: run_together(engine, prompts, **options))
    if [each.token_ids for each in alone] != [each.token_ids for each in shared.results]:
        raise SystemExit(f"{source}, {len(prompts)} together: other tokens than alone")
    of_all = len(prompts) * num_tokens
    return {
        "alone": of_all / seconds_alone,
        "together": of_all / seconds_shared,
        "each": num_tokens / statistics.mean(shared.ends),
    }


def measure_all(engine: Engine, prompts: list[list[int]], asked: argparse.Namespace) -> None:
    """Print medians, a line for each source and number of generations."""
    speeds: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(asked.rounds):
        for source in asked.sources:
            for count in asked.together:
                for name, speed in measure(engine, prompts[:count], source, asked.new_tokens).items():
                    speeds[source, count][name].append(speed)
    print(f"{'source':8} {'together':>8} {'one by one':>12} {'together':>12} {'':>6} {'each':>8}  tokens/s")
    for (source, count), by_name in sorted(speeds.items(), key=lambda item: asked.sources.index(item[0][0])):
        medians = {name: statistics.median(values) for name, values in by_name.items()}
        ratio = f"{medians['together'] / medians['alone']:.2f}x"
        print(
            f"{source:8} {count:8} {medians['alone']:12.0f} {medians['together']:12.0f} {ratio:>6} "
            f"{medians['each']:8.1f}"
        )


def count_all(engine: Engine, prompts: list[list[int]], asked: argparse.Namespace) -> None:
    """Print what "auto" comes to, as many times as there are rounds: what it learns stays."""
    print(f"{'source':8} {'together':>8} {'all':>8} {'first':>8} {'each':>8}  relative to plain, by costs")
    for _ in range(asked.rounds):
        for count in asked.together:
            print(count_passes(engine, prompts[:count], "auto", asked.new_tokens))


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
    parser.add_argument("--count", action="store_true")
    asked = parser.parse_args()
    most = max(asked.together)
    with Engine(
        asked.bundle, threads=asked.threads, device=asked.device, num_sequences=most, max_context=1024
    ) as engine:
        prompts = read_prompts(engine, asked.prompts, most)
        engine.generate_batch(prompts, max_new_tokens=1)
        (count_all if asked.count else measure_all)(engine, prompts, asked)


if __name__ == "__main__":
    main()
