"""Prints the lowest version that pyproject.toml allows of each package that runs a bundle, one requirement a line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
for requirement in (*project["dependencies"], *extras["cpu"], *extras["structured"]):
    name, lowest = re.fullmatch(r"([a-z0-9-]+)>=([0-9.]+),<[0-9.]+", requirement).groups()
    sys.stdout.write(f"{name}=={lowest}\n")
