"""Makes a release: python samples/release.py VERSION writes the version, dates the changelog, commits and tags.

Nothing is pushed or uploaded. Refused: a version that is older than the last, a tag that exists, uncommitted changes,
and a changelog with nothing to say.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# Each file that has the version, and how it stands there.
PLACES = {
    "pyproject.toml": re.compile(r'(?m)^(version = ")(\d+\.\d+\.\d+)(")$'),
    "native/include/pilotfish.h": re.compile(r'(?m)^(#define PF_VERSION ")(\d+\.\d+\.\d+)(")$'),
}
CHANGELOG = "CHANGELOG.md"
UNRELEASED = re.compile(r"(?ms)^## Unreleased\n(.*?)(?=^## |\Z)")


class ReleaseError(ValueError):
    """Why there is no release; the message is for whoever asked for it."""


def release(root: Path, version: str, date: str) -> None:
    """Commits and tags a version in the repository at root.

    Raises:
        ReleaseError: see the module; nothing was changed then.
    """
    texts = dated(root, version, date)
    if git(root, "status", "--porcelain"):
        raise ReleaseError("there are uncommitted changes: commit or stash them")
    if git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists")
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    git(root, "commit", "--all", "--quiet", "--message", f"Release {version}")
    git(root, "tag", "--annotate", "--message", f"pilotfish {version}", f"v{version}")


def dated(root: Path, version: str, date: str) -> dict[Path, str]:
    """The files as they are at a version, which may not be older than the one that stands there."""
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is no version, such as 1.2.3")
    texts = {}
    for name, pattern in PLACES.items():
        text = (root / name).read_text(encoding="utf-8")
        match = pattern.search(text)
        if match is None:
            raise ReleaseError(f"{name} has no version")
        if numbers(version) < numbers(match[2]):
            raise ReleaseError(f"{version} is older than {match[2]}, which {name} has")
        texts[root / name] = pattern.sub(rf"\g<1>{version}\g<3>", text)
    changes = (root / CHANGELOG).read_text(encoding="utf-8")
    section = UNRELEASED.search(changes)
    if section is None or not section[1].strip():
        raise ReleaseError(f"{CHANGELOG} has nothing under Unreleased")
    head = f"## Unreleased\n\n## {version} - {date}\n"
    texts[root / CHANGELOG] = changes[: section.start()] + head + changes[section.start(1) :]
    return texts


def numbers(version: str) -> tuple[int, ...]:
    """A version's parts, which compare as versions do."""
    return tuple(map(int, version.split(".")))


def git(root: Path, *arguments: str) -> str:
    """What a git command prints."""
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout  # noqa: S607


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="such as 0.2.0")
    version = parser.parse_args().version
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    try:
        release(Path(__file__).resolve().parents[1], version, today)
    except ReleaseError as error:
        sys.exit(f"error: {error}")
    print(f"committed and tagged v{version}; next: git push --follow-tags, bash samples/build_wheels.sh")


if __name__ == "__main__":
    main()
