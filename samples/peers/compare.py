"""pilotfish beside other engines on one checkpoint, the same prompts and threads, taking turns prompt by prompt.

    python samples/peers/compare.py BUNDLE --gguf FILE --engines build/peers [--html FILE] [--json FILE]

BUNDLE and FILE hold the same weights. samples/peers/run.sh installs the engines, each into a virtual environment of
its own below --engines, and calls this. An engine that is not there, or fails, is named and left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from pilotfish import Engine
from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.bench import drafting_models
from pilotfish.runtime.bench_prompts import built_in_prompts
from pilotfish.runtime.bench_statistics import Interval, median_interval
from pilotfish.runtime.files import check_outputs, replace_text, why_not_writable
from pilotfish.runtime.machine import describe_machine
from pilotfish.runtime.report.page import Page
from pilotfish.runtime.report.svg import Bar, bars

WORKERS = Path(__file__).resolve().parent / "workers"
SCHEMA = "pilotfish-peers/1"
HEADER = ("engine", "version", "tokens/s", "beside pilotfish plain", "95 % sure", "first token, ms", "same tokens")


@dataclass(slots=True)
class Peer:
    """A running worker and what it measured."""

    name: str
    version: str
    process: subprocess.Popen[str]
    answers: list[dict] = field(default_factory=list)

    def ask(self, ids: list[int], new_tokens: int) -> dict:
        """One answer: its ids, and the seconds to its first token and from there to its last."""
        self.process.stdin.write(json.dumps({"ids": ids, "new_tokens": new_tokens}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"{self.name} ended with exit code {self.process.wait()}")
        answer = json.loads(line)
        if len(answer["ids"]) != new_tokens:
            raise ValueError(f"it gave {len(answer['ids'])} of {new_tokens} tokens")
        return answer

    @property
    def speeds(self) -> list[float]:
        """Tokens a second after the first one, of each prompt."""
        return [(len(each["ids"]) - 1) / each["decode"] for each in self.answers]


def commands(arguments: argparse.Namespace, sources: list[str]) -> list[tuple[Path, list[str]]]:
    """The interpreter and the command line of each worker."""
    threads = str(arguments.threads)
    own, others = Path(sys.executable), arguments.engines
    found = [(own, ["pilotfish_worker.py", str(arguments.bundle), threads, source]) for source in sources]
    for folder, worker in (("llama_cpp", "llama_cpp_worker.py"), ("openvino", "openvino_worker.py")):
        python = others / folder / "bin" / "python"
        found += [(python, [worker, str(arguments.gguf), threads, mode]) for mode in ("plain", "lookup")]
    python = others / "ort_genai" / "bin" / "python"
    found.append((python, ["ort_genai_worker.py", str(others / "ort_genai" / "model"), threads, "plain"]))
    python = others / "transformers" / "bin" / "python"
    found += [(python, ["transformers_worker.py", str(arguments.gguf), threads, mode]) for mode in ("plain", "lookup")]
    if arguments.draft_gguf:
        draft = [str(arguments.gguf), threads, "draft", str(arguments.draft_gguf)]
        found.append((python, ["transformers_worker.py", *draft]))
    return found


def start(python: Path, command: list[str]) -> Peer | str:
    """A worker that has loaded its model, or why there is none."""
    name = " ".join([command[0].removesuffix("_worker.py"), command[3]])
    if not python.exists():
        return f"{name}: not installed ({python} does not exist)"
    with tempfile.TemporaryFile() as said:  # a pipe that nobody reads would stop an engine that prints a lot
        process = subprocess.Popen(
            [str(python), str(WORKERS / command[0]), *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        line = process.stdout.readline()
        if not line:
            process.wait()
            said.seek(0)
            error = said.read().decode(errors="replace").strip().splitlines() or ["no message"]
            return f"{name}: could not start: {error[-1]:.200}"
    return Peer(**json.loads(line), process=process)


def measure(peers: list[Peer], prompts: list[list[int]], new_tokens: int) -> list[str]:
    """Let all answer each prompt in turn, the first one another each time; who failed and why."""
    failed = []
    for turn, ids in enumerate([prompts[0], *prompts]):  # the first turn warms up
        if not peers:
            break
        for peer in peers[turn % len(peers) :] + peers[: turn % len(peers)]:
            try:
                answer = peer.ask(ids, new_tokens)
            except (EOFError, OSError, ValueError) as error:
                failed.append(f"{peer.name}: {error}")
                continue
            if turn:
                peer.answers.append(answer)
        peers[:] = [peer for peer in peers if not any(line.startswith(f"{peer.name}:") for line in failed)]
    return failed


def summarise(peers: list[Peer]) -> list[dict]:
    """One entry an engine; ratios are prompt by prompt, to the first one, which is pilotfish plain."""
    plain = peers[0]
    entries = []
    for peer in peers:
        ratio = median_interval([each / own for each, own in zip(peer.speeds, plain.speeds, strict=True)])
        same = [each["ids"] == own["ids"] for each, own in zip(peer.answers, plain.answers, strict=True)]
        entries.append(
            {
                "name": peer.name,
                "version": peer.version,
                "tokens_per_s": statistics.median(peer.speeds),
                "speeds": peer.speeds,
                "ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
                "ttft_ms": 1e3 * statistics.median(each["ttft"] for each in peer.answers),
                "same_tokens": sum(same) / len(same),
            }
        )
    return entries


def row(entry: dict) -> tuple[str, ...]:
    """An engine's row of the table."""
    ratio = Interval(**entry["ratio"])
    sure = "" if ratio.low is None else f"{ratio.low:.2f} .. {ratio.high:.2f}"
    numbers = (f"{entry['tokens_per_s']:.1f}", f"{ratio.median:.2f}", sure, f"{entry['ttft_ms']:.1f}")
    return (entry["name"], entry["version"], *numbers, f"{entry['same_tokens']:.0%}")


def page(report: dict) -> Page:
    """The same table with a chart."""
    made = Page("pilotfish beside other engines", f"{report['machine']['cpu']}, {report['threads']} threads")
    for line in report["left_out"]:
        made.note(f"Left out: {line}")
    made.section("Decoding")
    made.paragraph(
        f"{report['prompts']} of pilotfish's prompts, {report['new_tokens']} tokens each, greedy, one checkpoint "
        f"({report['gguf']}), in turn prompt by prompt. Engines that store the weights in another way than pilotfish "
        "round differently, so that their texts part at some token."
    )
    drawn = [
        Bar(entry["name"], entry["tokens_per_s"], f"{entry['tokens_per_s']:.0f}", index)
        for index, entry in enumerate(report["engines"])
    ]
    made.chart("engines", "Tokens a second, median over the prompts.", bars("Tokens a second", [("", drawn)]))
    made.table(HEADER, [row(entry) for entry in report["engines"]])
    return made


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--draft-gguf", type=Path)
    parser.add_argument("--engines", type=Path, default=Path("build/peers"))
    for name, default in (("threads", 2), ("prompts", 12), ("new-tokens", 48)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("html", "json"):
        parser.add_argument(f"--{name}")
    arguments = parser.parse_args()
    for name, least in (("threads", 1), ("prompts", 1), ("new_tokens", 2)):
        if getattr(arguments, name) < least:
            parser.error(f"--{name.replace('_', '-')} is {getattr(arguments, name)}, must be at least {least}")
    outputs = {"--html": arguments.html, "--json": arguments.json}
    for name, file in outputs.items():  # before the minutes, not after them
        if file is not None and (reason := why_not_writable(file)):
            parser.error(f"{name} {file!r} cannot be written: {reason}")
    try:
        check_outputs(outputs, [file for file in (arguments.gguf, arguments.draft_gguf) if file is not None])
    except InvalidArgumentError as error:
        parser.error(str(error))
    return arguments


def main() -> int:
    """Start, measure in turn, show."""
    arguments = parse()
    with Engine(arguments.bundle, threads=arguments.threads) as engine:
        prompts = [list(prompt.ids) for prompt in built_in_prompts(engine, arguments.new_tokens).prompts]
        models = drafting_models(engine.info)
    started = [start(*command) for command in commands(arguments, ["plain", "lookup", *models, "auto"])]
    peers = [peer for peer in started if isinstance(peer, Peer)]
    left_out = [reason for reason in started if isinstance(reason, str)]
    if not peers or peers[0].name != "pilotfish plain":
        sys.exit(f"pilotfish itself could not start: {left_out[0]}")
    left_out += measure(peers, prompts[: arguments.prompts], arguments.new_tokens)
    for peer in peers:
        peer.process.stdin.close()
    if not peers or peers[0].name != "pilotfish plain":
        sys.exit(f"pilotfish itself failed: {left_out}")
    report = {
        "schema": SCHEMA,
        "machine": describe_machine(),
        "gguf": arguments.gguf.name,
        "threads": arguments.threads,
        "prompts": len(peers[0].answers),
        "new_tokens": arguments.new_tokens,
        "engines": summarise(peers),
        "left_out": left_out,
    }
    for line in (HEADER, *map(row, report["engines"])):
        print("  ".join(f"{cell:>16}" for cell in line))
    for line in left_out:
        print(f"left out: {line}")
    if arguments.json is not None:
        replace_text(Path(arguments.json), json.dumps(report, indent=2) + "\n")
    if arguments.html is not None:
        replace_text(Path(arguments.html), page(report).html())
    return 0


if __name__ == "__main__":
    sys.exit(main())
