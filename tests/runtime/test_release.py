"""`samples/release.py` writes a version into each place, dates the changelog, commits and tags, or says why not."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RELEASE = load(ROOT / "samples" / "release.py")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The project's files that a release changes, committed."""
    for name in (*RELEASE.PLACES, RELEASE.CHANGELOG):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / RELEASE.CHANGELOG).write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n* A thing.\n")
    for command in (
        ("init", "--quiet"),
        ("config", "user.name", "somebody"),
        ("config", "user.email", "somebody@example.org"),
        ("add", "--all"),
        ("commit", "--quiet", "--message", "first"),
    ):
        RELEASE.git(tmp_path, *command)
    return tmp_path


def test_the_project_has_one_version() -> None:
    found = {pattern.search((ROOT / name).read_text())[2] for name, pattern in RELEASE.PLACES.items()}
    assert len(found) == 1


def test_a_release_is_written_committed_and_tagged(repository: Path) -> None:
    RELEASE.release(repository, "7.8.9", "2027-01-31")
    assert 'version = "7.8.9"' in (repository / "pyproject.toml").read_text()
    assert '#define PF_VERSION "7.8.9"' in (repository / "native/include/pilotfish.h").read_text()
    changes = (repository / "CHANGELOG.md").read_text()
    assert "## Unreleased\n\n## 7.8.9 - 2027-01-31\n\n### Added\n\n* A thing.\n" in changes
    assert RELEASE.git(repository, "tag", "--points-at", "HEAD") == "v7.8.9\n"
    assert RELEASE.git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("version", "why"),
    [("0.0.1", "is older than"), ("7.8", "is no version"), ("7.8.9-rc1", "is no version")],
)
def test_a_version_that_is_none_is_refused(repository: Path, version: str, why: str) -> None:
    with pytest.raises(RELEASE.ReleaseError, match=why):
        RELEASE.release(repository, version, "2027-01-31")
    assert RELEASE.git(repository, "status", "--porcelain") == ""


def test_what_is_not_ready_is_refused(repository: Path) -> None:
    RELEASE.git(repository, "tag", "v7.8.9")
    with pytest.raises(RELEASE.ReleaseError, match=r"the tag v7\.8\.9 exists"):
        RELEASE.release(repository, "7.8.9", "2027-01-31")
    (repository / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-01-01\n")
    with pytest.raises(RELEASE.ReleaseError, match="nothing under Unreleased"):
        RELEASE.release(repository, "9.0.0", "2027-01-31")
    subprocess.run(["git", "-C", str(repository), "checkout", "--quiet", "CHANGELOG.md"], check=True)
    (repository / "pyproject.toml").write_text((repository / "pyproject.toml").read_text() + "\n")
    with pytest.raises(RELEASE.ReleaseError, match="uncommitted changes"):
        RELEASE.release(repository, "9.0.0", "2027-01-31")
