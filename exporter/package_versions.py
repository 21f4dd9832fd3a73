"""The versions of the packages that an export depends on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("pilotfish", "torch", "transformers", "onnx-ir", "onnxscript")


def package_versions() -> dict[str, str]:
    """By name; "source" for one that runs from its source folders."""
    return {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "source"
