"""Multiply-adds a cycle of the compiled int4 loops, as llvm-mca's models of processors simulate them: no Arm needed.

usage: python samples/bench_mca.py [--mca llvm-mca-22] [--folder native's build folder for aarch64, or for x86-64]
The models are LLVM's (version 19 or newer; those of 16 are wrong about dot products); memory is always in the
first-level cache there. `bound` is what the loop's use of execution units allows.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROWS = (1, 2, 4, 8)
OLDEST_LLVM = 19
BRANCH = re.compile(r"\s+(?:b\.?\w+|j\w+|cbn?z\s+\w+,)\s+(\.L\w+)")
PRODUCTS = {"sdot": 16, "smmla": 32, "smlal": 8, "smlal2": 8, "vpmaddubsw": 32}  # multiply-adds of an instruction
ARM_CORES = ("cortex-a55", "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2")
# Each set's source file, the struct that has the loop, the cores whose instructions it has.
KERNELS = {
    "linear_dotprod.cpp": ("DotLanes", ARM_CORES),
    "linear_i8mm.cpp": ("DotInteger", ("neoverse-n2", "neoverse-v1", "neoverse-v2")),
    "linear_neon.cpp": ("DotInteger", ("cortex-a55", "cortex-a72", "neoverse-n1")),
    "linear_avx2.cpp": ("DotInteger", ("znver3",)),
}


@dataclass(frozen=True, slots=True)
class Throughput:
    """Multiply-adds a cycle."""

    simulated: float
    bound: float


def assembly(folder: Path, source: str) -> str | None:
    """The file's assembly with the flags that the build has for it; None where the build has no such file."""
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        if Path(entry["file"]).name != source:
            continue
        words = shlex.split(entry["command"])
        at = words.index("-o")
        command = [*words[:at], "-S", "-o", "-", *words[at + 2 :]]
        command.remove("-c")
        return subprocess.run(command, cwd=entry["directory"], check=True, capture_output=True, text=True).stdout
    return None


def functions(text: str) -> dict[str, list[str]]:
    """Lines of each function by its symbol."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines():
        if label := re.match(r"(_Z\w+)(\.\w+)*:", line):
            lines = found.setdefault(label[1], [])
        elif lines is not None:
            lines.append(line)
    return found


def innermost_loop(lines: list[str]) -> list[str]:
    """The longest run of instructions from a label to a branch back to it; branches inside leave the loop."""
    labels: dict[str, int] = {}
    best: list[str] = []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.L\w+):", line):
            labels[label[1]] = number
        branch = BRANCH.match(line)
        if branch and branch[1] in labels:
            first = labels[branch[1]]
            body = lines[first + 1 : number + 1]
            inside = [found[1] for found in map(BRANCH.match, body[:-1]) if found]
            if not any(first <= labels.get(target, -1) for target in inside) and len(body) > len(best):
                best = body
    return [line for line in best if re.match(r"\s+[a-z]", line)]


def count_products(loop: list[str]) -> int:
    """Multiply-adds of a turn of a loop, however many blocks the compiler put into one."""
    return sum(PRODUCTS.get(line.split()[0], 0) for line in loop)


def simulate(mca: str, triple: str, core: str, loop: list[str], num_products: int) -> Throughput:
    """What llvm-mca says about 200 turns of a loop that makes num_products multiply-adds."""
    with tempfile.NamedTemporaryFile("w", suffix=".s") as file:
        file.write(".Lloop:\n" + "\n".join(re.sub(r"\.L\w+", ".Lloop", line) for line in loop) + "\n")
        file.flush()
        command = [mca, f"-mtriple={triple}", f"-mcpu={core}", "-iterations=200", file.name]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    numbers = {name: float(value) for name, value in re.findall(r"^([\w ]+):\s+([\d.]+)$", report, re.MULTILINE)}
    return Throughput(200 * num_products / numbers["Total Cycles"], num_products / numbers["Block RThroughput"])


def loop_of(text: str, struct: str, rows: int) -> list[str]:
    """The loop of int4 (format 0) with this number of rows, wherever the compiler put it."""
    names = (f"{struct}ILNS_12WeightFormatE0ELi{rows}EE", f"{struct}ILNS2_12WeightFormatE0ELi{rows}EE",
             f"{struct}ILS2_0ELi{rows}EE")  # fmt: skip
    loops = [
        innermost_loop(lines) for name, lines in functions(text).items() if any(wanted in name for wanted in names)
    ]
    return max(loops, key=len, default=[])


def report(folder: Path, mca: str) -> list[dict[str, object]]:
    """Prints a line a kernel, core and number of rows, and returns them."""
    results: list[dict[str, object]] = []
    for source, (struct, cores) in KERNELS.items():
        text = assembly(folder, source)
        if text is None:
            continue
        triple = "x86_64" if "avx" in source else "aarch64"
        for core in cores:
            for rows in ROWS:
                loop = loop_of(text, struct, rows)
                if not loop:
                    continue
                found = simulate(mca, triple, core, loop, count_products(loop))
                results.append({"kernel": source, "core": core, "rows": rows, "instructions": len(loop),
                                "simulated": round(found.simulated, 1), "bound": round(found.bound, 1)})  # fmt: skip
                print(f"{source:20} {core:12} {rows} rows: {len(loop):4} instructions, "
                      f"{found.simulated:5.1f} simulated, {found.bound:5.1f} bound")  # fmt: skip
    return results


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mca", default="llvm-mca", help="llvm-mca of LLVM 19 or newer")
    parser.add_argument("--folder", type=Path, default=Path("build/aarch64"))
    options = parser.parse_args()
    version = subprocess.run([options.mca, "--version"], check=True, capture_output=True, text=True).stdout
    number = re.search(r"LLVM version (\d+)", version)
    if number is None or int(number[1]) < OLDEST_LLVM:
        parser.error(f"{options.mca} is not LLVM {OLDEST_LLVM} or newer: {version.strip().splitlines()[0]}")
    print(json.dumps(report(options.folder, options.mca)))


if __name__ == "__main__":
    main()
