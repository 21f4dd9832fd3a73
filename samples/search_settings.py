"""How near "auto" comes to the best fixed way of drafting, by category of prompts.

    python samples/search_settings.py build/smollm2 --prompts prompts.jsonl --per-category 8 --calibration refresh

Every setting answers every prompt, in turn; all give the same text, greedy or of one seed. Two speeds are shown:
measured, from the first token to the last, and counted, by the costs of passes that rounds are planned by. The counted
one is the same in every run under one calibration, also on a busy machine. `--length` compares tokens a round of trees
and chains of up to 15 tokens instead, `--chains` chains of all lengths alone. On a GPU, where shapes of passes are
recorded when they are first seen, each setting answers the first prompt twice before it counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish import Engine
from pilotfish.runtime.bench_prompts import prompts_from_file
from pilotfish.runtime.options import GenerateKeywords as Options

if TYPE_CHECKING:
    from pilotfish import Stats
    from pilotfish.runtime.bench import Prompt

MOST_DRAFTED = 15
NUM_WARMING = 2
AUTO = "auto"
PLAIN = "plain"
ALL = "all"


@dataclass(slots=True)
class Sums:
    """Over the answers to some prompts; the first token of each is left out, as it comes from prefill."""

    tokens: int = 0
    rounds: int = 0
    counted_seconds: float = 0.0
    seconds: float = 0.0

    def add(self, stats: Stats, seconds: float) -> None:
        """One more answer, and the time from its first token to its last."""
        self.tokens += stats.num_new_tokens - 1
        self.rounds += stats.num_rounds
        self.counted_seconds += stats.counted_seconds
        self.seconds += seconds

    def speed(self, *, counted: bool) -> float:
        """Tokens a second."""
        return self.tokens / (self.counted_seconds if counted else self.seconds)


def dynamic(tokens: int, levels: int, source: str = "draft") -> Options:
    """A tree of the likeliest tokens."""
    return Options(tree="dynamic", tree_nodes=tokens, tree_depth=levels, source=source)


def chains(*lengths: int) -> dict[str, Options]:
    """Chains of the draft model."""
    return {f"chain {k}": Options(source="draft", num_draft_tokens=k) for k in lengths}


def settings(*, has_draft: bool, has_head: bool, length: bool, chains_only: bool) -> dict[str, Options]:
    """What is compared, "plain" and "auto" among them."""
    chosen = {PLAIN: Options(num_draft_tokens=0), AUTO: Options(source=AUTO)}
    if chains_only:
        return chosen | chains(*range(1, 9), 11, MOST_DRAFTED)
    if not length:
        chosen["lookup"] = Options(source="lookup", num_draft_tokens=8)
    if has_head and not length:
        chosen |= {f"head {k}": Options(source="head", num_draft_tokens=k) for k in (1, 2, 3, 4, 5, 7)}
        chosen |= {f"head, tree of {tokens}": dynamic(tokens, min(tokens, 6), "head") for tokens in (3, 7, 15)}
    if not has_draft:
        return chosen
    if length:
        chosen |= chains(8, 12, MOST_DRAFTED)
        chosen |= {f"tree, {levels} levels": dynamic(MOST_DRAFTED, levels) for levels in (5, 6, 8, 10)}
        chosen |= {f"lookup + tree, {levels}": dynamic(MOST_DRAFTED, levels, "lookup+draft") for levels in (6, 8, 10)}
        return chosen
    chosen["lookup + 4"] = Options(source="lookup+draft", num_draft_tokens=4)
    chosen |= chains(*range(1, 9), 11, MOST_DRAFTED)
    chosen |= {f"tree of {tokens}": dynamic(tokens, min(tokens, 6)) for tokens in (3, 4, 5, 6, 7, 9, 11, 13, 15)}
    return chosen


def run(
    engine: Engine, prompts: list[Prompt], chosen: dict[str, Options], common: Options
) -> dict[str, dict[str, Sums]]:
    """Sums by category and setting."""
    sums: dict[str, dict[str, Sums]] = defaultdict(lambda: defaultdict(Sums))
    for options in chosen.values():
        for _ in range(NUM_WARMING):
            engine.generate(prompts[0].ids, **(common | options))
    for prompt in prompts:
        plain = None
        for name, options in chosen.items():
            with engine.stream(prompt.ids, **(common | options | Options(reuse_prefix=False))) as stream:
                times = [(time.perf_counter(), event.token_id) for event in stream]
                stats = stream.stats
            ids = [token_id for _, token_id in times]
            plain = plain or ids
            if ids != plain:
                raise SystemExit(f"{name} does not give plain decoding's tokens")
            for category in (prompt.category, ALL):
                sums[category][name].add(stats, times[-1][0] - times[0][0])
    return sums


def show_speeds(sums: dict[str, dict[str, Sums]], *, counted: bool) -> None:
    """A row a category: the best fixed setting, and where auto is."""
    print(f"\n{'counted' if counted else 'measured'}, tokens/s")
    print(f"{'category':24}{'plain':>8}{'auto':>8}{'best fixed':>12}  {'':16}{'auto/best':>10}{'auto/plain':>11}")
    for category, chosen in sums.items():
        speeds = {name: each.speed(counted=counted) for name, each in chosen.items()}
        best = max((name for name in speeds if name != AUTO), key=speeds.__getitem__)
        auto, plain = speeds[AUTO], speeds[PLAIN]
        print(
            f"{category:24}{plain:8.1f}{auto:8.1f}{speeds[best]:12.1f}  {best:16}"
            f"{auto / speeds[best]:10.3f}{auto / plain:11.3f}"
        )


def show_lengths(sums: dict[str, dict[str, Sums]]) -> None:
    """A row a setting: tokens a round by category."""
    print(f"\ntokens a round\n{'':22}" + "".join(f"{category[:12]:>14}" for category in sums))
    for name in sums[ALL]:
        print(f"{name:22}" + "".join(f"{sums[each][name].tokens / sums[each][name].rounds:14.3f}" for each in sums))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--prompts", required=True, help='JSON lines with "prompt" and "category"')
    parser.add_argument("--per-category", type=int, default=8, help="prompts")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy")
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu", help='"cpu", "cuda" or "cuda:1"')
    parser.add_argument("--calibration", default="kept", help='"refresh": measure the costs of passes anew')
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--length", action="store_true", help="compare tokens a round")
    what.add_argument("--chains", action="store_true", help="compare chains alone")
    parser.add_argument("--json", help="write the sums there")
    return parser.parse_args()


def main() -> None:
    """Parse, run, print tables."""
    arguments = parse_arguments()
    with Engine(
        arguments.bundle,
        threads=arguments.threads,
        device=arguments.device,
        max_draft_tokens=MOST_DRAFTED,
        calibration=arguments.calibration,
    ) as engine:
        by_category: dict[str, list[Prompt]] = defaultdict(list)
        for prompt in prompts_from_file(engine, arguments.prompts).prompts:
            by_category[prompt.category].append(prompt)
        prompts = [prompt for group in by_category.values() for prompt in group[: arguments.per_category]]
        has = {"has_draft": engine.info.has_draft, "has_head": engine.info.has_head}
        chosen = settings(**has, length=arguments.length, chains_only=arguments.chains)
        common = Options(
            max_new_tokens=arguments.new_tokens,
            temperature=arguments.temperature,
            top_k=arguments.top_k,
            top_p=arguments.top_p,
            seed=arguments.seed,
        )
        sums = run(engine, prompts, chosen, common)
    show_lengths(sums)
    if not arguments.length:
        show_speeds(sums, counted=True)
        show_speeds(sums, counted=False)
    if arguments.json:
        content = {category: {name: asdict(each) for name, each in group.items()} for category, group in sums.items()}
        Path(arguments.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
