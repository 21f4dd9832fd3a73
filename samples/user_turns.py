"""Writes user turns for `--user-turns`: python samples/user_turns.py TEXT OUT.jsonl [COUNT [SEED]].

TEXT is a folder of .txt files: of those named code_* functions are taken to be completed, of the others paragraphs to
be translated, summarised and asked about. Questions and sums come from the templates in user_turns.json beside this
file.
A head learns the kinds of turns that it was trained on: an application has better ones, the turns of its users.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections import Counter
from pathlib import Path

WORDS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SHARES = {"translation": 25, "sums": 16, "chat": 18, "functions": 13, "summaries": 14, "passages": 14}  # per cent
_LARGEST_FILE = 2_000_000  # characters that count in the weight of a file: none drowns the others
_HEADING = range(4, 60)  # characters
_LEAST_PROSE = 60
_DOCUMENTATION = range(21, 900)
_MANY_PASSAGES = 4
_TRIES = 2000  # for a run of paragraphs of the wanted length


class Paragraphs:
    """Consecutive paragraphs of prose files."""

    def __init__(self, paths: list[Path]) -> None:
        texts = [path.read_text(encoding="utf-8") for path in paths]
        self._parts = [re.split(r"\n\n+|<\|endoftext\|>", text) for text in texts]
        self._weights = [min(len(text), _LARGEST_FILE) ** 0.75 for text in texts]

    def run(self, rng: random.Random, least: int, most: int) -> tuple[str, str]:
        """Paragraphs of `least` to `most` characters together, and a heading near them or their first words."""
        for _ in range(_TRIES):
            parts = rng.choices(self._parts, self._weights)[0]
            at = rng.randrange(len(parts))
            taken = _sentences(parts[at : at + 60], rng.uniform(least, most), most)
            text = "\n\n".join(taken)
            if len(text) >= least:
                before = [part.strip() for part in reversed(parts[max(0, at - 12) : at])]
                headings = (part for part in before if len(part) in _HEADING and "\n" not in part)
                return text, next(headings, text.split(".", maxsplit=1)[0][:50])
        raise SystemExit(f"no text has paragraphs of {least} to {most} characters; give longer ones")


def _sentences(parts: list[str], wanted: float, most: int) -> list[str]:
    """From the first paragraph of prose on, until there are `wanted` characters; never more than `most`."""
    taken: list[str] = []
    size = 0
    for part in (part.strip() for part in parts):
        is_prose = len(part) >= _LEAST_PROSE and re.search(r"[a-z][.!?:]", part)
        if not is_prose and not taken:
            continue
        if not is_prose or size + len(part) > most or size >= wanted:
            break
        taken.append(part)
        size += len(part) + 2
    return taken


def heads_of_functions(source: str) -> list[str]:
    """Python functions at the left margin up to the end of their docstrings."""
    found = []
    for block in re.split(r"\n(?=def |class |@|# )", source):
        if not block.startswith("def "):
            continue
        try:
            (node, *_) = ast.parse(block).body
        except (SyntaxError, ValueError, RecursionError):
            continue
        documentation = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
        if isinstance(node, ast.FunctionDef) and documentation and len(documentation) in _DOCUMENTATION:
            found.append("\n".join(block.split("\n")[: node.body[0].end_lineno]))
    return found


class Turns:
    """One method for each kind of user turn, of the name that SHARES has for it."""

    def __init__(self, text: Path, rng: random.Random) -> None:
        paths = sorted(text.glob("*.txt"))
        is_code = [path.name.startswith("code_") for path in paths]
        self._rng = rng
        self._prose = Paragraphs([path for path, code in zip(paths, is_code, strict=True) if not code])
        sources = [path.read_text(encoding="utf-8") for path, code in zip(paths, is_code, strict=True) if code]
        self._functions = [
            head for part in "\n".join(sources).split("<|endoftext|>") for head in heads_of_functions(part)
        ]
        if all(is_code) or not self._functions:
            missing = "prose" if all(is_code) else "documented Python functions in files named code_*"
            raise SystemExit(f"the .txt files of {text} hold no {missing}; add some")

    def chat(self) -> str:
        """A question or request about a topic or two."""
        template = self._one("chat")
        return template.format(*self._rng.sample(WORDS["topics"], template.count("{}")))

    def sums(self) -> str:
        """A word problem."""
        rng = self._rng
        first, second, third = rng.sample(WORDS["names"], 3)
        text = self._one("sums").format(
            a=first,
            b=second,
            c=third,
            i=self._one("items"),
            p=self._one("places"),
            x=rng.randrange(5, 60),
            y=rng.randrange(3, 30),
            z=rng.randrange(2, 13),
            w=rng.randrange(2, 7),
            big=rng.choice((100, 120, 150, 180, 200, 240, 300, 400, 500)),
            pc=rng.choice((10, 20, 25, 30, 40, 50, 60, 75)),
        )
        return text[0].upper() + text[1:] + self._one("sums_end")

    def functions(self) -> str:
        """A function to complete."""
        return self._one("functions").format(self._rng.choice(self._functions))

    def translation(self) -> str:
        """A short text to translate."""
        text, _ = self._prose.run(self._rng, 70, 480)
        return self._one("translations").format(l=self._one("languages"), t=text)

    def summaries(self) -> str:
        """A long text to summarise."""
        return self._one("summaries").format(self._prose.run(self._rng, 900, 4400)[0])

    def passages(self) -> str:
        """A question about two to four passages."""
        count = self._rng.choice((2, 3, 3, 3, 4))
        found = [self._prose.run(self._rng, 350, 900 if count == _MANY_PASSAGES else 1500) for _ in range(count)]
        numbered = "\n\n".join(f"[{number}] {text}" for number, (text, _) in enumerate(found, start=1))
        return self._one("passages").format(p=numbered, q=self._one("questions").format(h=self._rng.choice(found)[1]))

    def _one(self, name: str) -> str:
        return self._rng.choice(WORDS[name])


def main(text: Path, out: Path, count: int = 60_000, seed: int = 0) -> None:
    """Writes the file and prints how many turns of each kind it has; a turn that came before is left out."""
    turns = Turns(text, random.Random(seed))  # noqa: S311 - no secrets
    found: dict[str, str] = {}
    for kind, share in SHARES.items():
        for _ in range(count * share // 100):
            found.setdefault(getattr(turns, kind)(), kind)
    lines = (json.dumps({"category": kind, "prompt": turn}, ensure_ascii=False) for turn, kind in found.items())
    out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{out}: {dict(Counter(found.values()))}")


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4, 5}:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
