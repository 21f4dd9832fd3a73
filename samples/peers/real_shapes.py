"""pilotfish beside llama.cpp in the shapes of models that people run, random weights, one GGUF file for both.

    python samples/peers/real_shapes.py FOLDER --llama-python build/peers/llama_cpp/bin/python [SHAPE ...]

A shape's file is written into FOLDER and exported there without the parity check, if they are not there yet. Both
engines are loaded, and take turns (A B B A): 64 tokens of greedy decoding after 100, then passes over 1 and 8 rows
after 256. It prints medians with their range, and the median over the turns of ours relative to llama.cpp's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from shape_files import SHAPES, Kind, write_shape

from pilotfish.exporter import ExportOptions, export

WORKERS = Path(__file__).resolve().parent / "workers"
PROMPT, NEW_TOKENS, CONTEXT, ROWS, REPEATS = 100, 64, 256, 8, 4
NUM_CONTEXT = 1024  # of both engines


class Worker:
    """An engine in a process of its own."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.speeds: list[float] = []
        self.times: dict[int, list[float]] = {1: [], ROWS: []}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would stop an engine
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )
        self.version = self._answer()["version"]

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip().splitlines() or ["no message"]
            sys.exit(f"{self.name} ended with exit code {code}: {said[-1]:.200}")
        return json.loads(line)

    def ask(self, **request: int) -> list[float]:
        """Seconds."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()["seconds"]

    def measure(self) -> None:
        """One turn."""
        self.speeds.append((NEW_TOKENS - 1) / self.ask(prompt=PROMPT, tokens=NEW_TOKENS)[0])
        for rows, found in self.times.items():
            found.append(statistics.median(self.ask(rows=rows, context=CONTEXT, repeats=REPEATS)))

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()
        self._said.close()


def files_of(folder: Path, name: str, embedding: Kind) -> tuple[Path, Path]:
    """The shape's GGUF file and bundle, made where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    file, bundle = folder / f"{name}-{embedding.name}.gguf", folder / f"{name}-{embedding.name}"
    if not file.exists():
        unfinished = file.with_suffix(".part")
        write_shape(SHAPES[name], unfinished, embedding)
        unfinished.rename(file)
    if not (bundle / "manifest.json").exists():
        export(str(file), bundle, options=ExportOptions(parity=False))
    return file, bundle


def spread(values: list[float], scale: float = 1.0) -> str:
    """Median [least .. most]."""
    low, middle, high = (scale * found for found in (min(values), statistics.median(values), max(values)))
    return f"{middle:.1f} [{low:.1f} .. {high:.1f}]"


def compare(name: str, args: argparse.Namespace) -> None:
    """Measures a shape and prints it."""
    file, bundle = files_of(args.folder, name, Kind[args.embedding])
    rest = [str(args.threads), str(NUM_CONTEXT)]
    ours = Worker("pilotfish", [sys.executable, str(WORKERS / "pilotfish_passes.py"), str(bundle), *rest])
    theirs = Worker("llama.cpp", [args.llama_python, str(WORKERS / "llama_cpp_passes.py"), str(file), *rest])
    for turn in range(1 + args.turns):
        for worker in (ours, theirs) if turn % 2 else (theirs, ours):
            worker.measure()
    for worker in (ours, theirs):
        worker.close()
        worker.speeds, worker.times = worker.speeds[1:], {rows: found[1:] for rows, found in worker.times.items()}
        one, many = worker.times[1], worker.times[ROWS]
        relative = statistics.median(most / least for least, most in zip(one, many, strict=True))
        print(
            f"{name:12} {worker.name} {worker.version}: decode {spread(worker.speeds)} tokens/s; pass of 1 row "
            f"{spread(one, 1e3)} ms, of {ROWS} {spread(many, 1e3)} ms, {relative:.2f} of one"
        )
    faster = [mine / other for mine, other in zip(ours.speeds, theirs.speeds, strict=True)]
    quicker = [other / mine for mine, other in zip(ours.times[ROWS], theirs.times[ROWS], strict=True)]
    print(
        f"{name:12} ours / llama.cpp: decode {statistics.median(faster):.2f} [{min(faster):.2f} .. {max(faster):.2f}], "
        f"passes of {ROWS} rows {statistics.median(quicker):.2f}",
        flush=True,
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), metavar="SHAPE", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--llama-python", required=True, help="a Python that has llama-cpp-python")
    parser.add_argument("--embedding", choices=("Q8_0", "Q6_K"), default="Q8_0", help="blocks of the embedding")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--prepare", action="store_true", help="only write and export the files")
    args = parser.parse_args()
    if unknown := sorted(set(args.shapes) - set(SHAPES)):
        parser.error(f"{unknown[0]!r} is no shape, allowed are {', '.join(SHAPES)}")
    for name in ("threads", "turns"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}, must be at least 1")
    for name in args.shapes:
        if args.prepare:
            files_of(args.folder, name, Kind[args.embedding])
        else:
            compare(name, args)


if __name__ == "__main__":
    main()
