"""The bundle's manifest.json, as far as Python needs it. The native loader checks the files themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import (
    BundleCorruptError,
    BundleFileMissingError,
    BundleVersionError,
)

from .bundle_files import NotABundleFileError, read_bundle_file
from .option_checks import check_path

if TYPE_CHECKING:
    from pathlib import Path


FORMAT = "pilotfish-bundle"
FORMAT_VERSION = 1
MOST_MANIFEST_BYTES = 16 << 20  # as in native/src/bundle/manifest.cpp
_FILE = "manifest.json"


@dataclass(frozen=True, slots=True)
class TokenizerEntry:
    """How to tokenize for the bundle's models."""

    file: str
    size: int
    bos_id: int | None
    eos_ids: tuple[int, ...]
    pad_id: int | None
    add_bos: bool
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DraftTrial:
    """Formats and a vocabulary that the export considered for a draft or head, and what they promised."""

    linear: str
    embedding: str
    lm_head: str
    num_logits: int
    """Token ids that it scores."""
    step_cost: float
    """Time of drafting a token, of a pass of the target over one."""
    agreement: float
    """Share of the target's tokens that it guesses, on the export's prompts; of a head, in rounds of ``chain``."""
    chain: int
    """Tokens to draft a round."""
    acceptance_length: float
    """Tokens a round, the target's own included."""
    speedup: float
    """Expected speed, of plain decoding's."""
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model of the bundle."""

    role: str
    architecture: str
    source: str
    parameters: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_positions: int
    cache_dtype: str
    formats: dict[str, str]
    mixture: dict[str, float]
    """Share of the linear layers' weights that each format has; empty in a bundle that does not say."""
    num_bytes: int
    nodes_per_layer: int = 5
    operators: tuple[str, ...] = ()
    """That ONNX Runtime runs for the model; empty: all nodes are pilotfish's."""
    unfused: tuple[str, ...] = ()
    """What is not fused, and why."""
    trials: tuple[DraftTrial, ...] = ()
    """Of a draft, what the export tried; empty where it had nothing to choose."""


@dataclass(frozen=True, slots=True)
class HeadEntry:
    """A head on the target's hidden states."""

    kind: str
    source: str
    parameters: int
    num_predictions: int
    """Tokens that a path can have; 0: as many as are asked for."""
    num_logits: int
    taps: tuple[int, ...]
    format: str
    num_bytes: int
    trials: tuple[DraftTrial, ...] = ()
    """What the export tried; empty where it had nothing to choose."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The bundle's description."""

    path: Path
    created_by: dict[str, str]
    tokenizer: TokenizerEntry
    chat_template: str | None
    models: tuple[ModelEntry, ...]
    head: HeadEntry | None = None
    tool_template: str | None = None
    """The chat template for conversations with tools; None: ``chat_template`` serves them too."""


def read_manifest(bundle: str | Path) -> Manifest:
    """Read BUNDLE/manifest.json.

    Raises:
        InvalidArgumentError: ``bundle`` is no path.
        BundleFileMissingError: there is none.
        BundleCorruptError: it is not a manifest, or a key is missing or of another type.
        BundleVersionError: it was written by another format version.
    """
    bundle = check_path("bundle", bundle, "a folder")
    path = bundle / _FILE
    try:
        content = json.loads(read_bundle_file(bundle, _FILE, MOST_MANIFEST_BYTES))
    except OSError as error:
        raise BundleFileMissingError(
            f"{path} cannot be read ({error.strerror}): {bundle} is not a bundle, make one with pilotfish export"
        ) from error
    except NotABundleFileError as error:
        raise BundleCorruptError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise BundleCorruptError(f"{path} is not JSON of a manifest's depth: {error}") from error
    _check_format(path, content)
    try:
        return _parse(bundle, content)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise BundleCorruptError(f"{path} is not a complete manifest: {type(error).__name__}: {error}") from error


def _check_format(path: Path, content: Any) -> None:
    found = content.get("format") if isinstance(content, dict) else type(content).__name__
    if found != FORMAT:
        raise BundleCorruptError(f"{path} has format {found!r}, expected {FORMAT!r}")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        message = (
            f"{path} has format_version {version!r}, this pilotfish reads {FORMAT_VERSION}: "
            "install the pilotfish that wrote it or export again"
        )
        raise BundleVersionError(message)


def _parse(bundle: Path, content: dict[str, Any]) -> Manifest:
    tokenizer = content["tokenizer"]
    return Manifest(
        path=bundle,
        created_by=dict(content["created_by"]),
        tokenizer=TokenizerEntry(
            file=str(tokenizer["file"]),
            size=int(tokenizer["size"]),
            bos_id=tokenizer["bos_id"],
            eos_ids=tuple(tokenizer["eos_ids"]),
            pad_id=tokenizer["pad_id"],
            add_bos=bool(tokenizer["add_bos"]),
            num_bytes=int(tokenizer["bytes"]),
            sha256=str(tokenizer["sha256"]),
        ),
        chat_template=content["chat_template"],
        models=tuple(_parse_model(role, entry) for role, entry in content["models"].items()),
        head=None if content.get("head") is None else _parse_head(content["head"]),
        tool_template=content.get("tool_template"),
    )


def _parse_head(entry: dict[str, Any]) -> HeadEntry:
    return HeadEntry(
        kind=str(entry["kind"]),
        source=str(entry["source"]),
        parameters=int(entry["parameters"]),
        num_predictions=int(entry["num_predictions"]),
        num_logits=int(entry["num_logits"]),
        taps=tuple(int(tap) for tap in entry["taps"]),
        format=str(entry["format"]),
        num_bytes=int(entry["weights"]["bytes"]) + sum(int(graph["bytes"]) for graph in entry["graphs"].values()),
        trials=_parse_trials(entry),
    )


def _parse_model(role: str, entry: dict[str, Any]) -> ModelEntry:
    return ModelEntry(
        role=role,
        architecture=str(entry["architecture"]),
        source=str(entry["source"]["id"]),
        parameters=int(entry["parameters"]),
        num_layers=int(entry["num_layers"]),
        hidden_size=int(entry["hidden_size"]),
        vocab_size=int(entry["vocab_size"]),
        max_positions=int(entry["max_positions"]),
        cache_dtype=str(entry["cache_dtype"]),
        formats=dict(entry["formats"]),
        mixture={str(name): float(share) for name, share in entry.get("mixture", {}).items()},
        num_bytes=int(entry["graph"]["bytes"]) + int(entry["weights"]["bytes"]),
        trials=_parse_trials(entry),
        **_parse_lowered(entry.get("lowered")),
    )


def _parse_trials(entry: dict[str, Any]) -> tuple[DraftTrial, ...]:
    return tuple(_parse_trial(trial) for trial in entry.get("trials", ()))


def _parse_trial(entry: dict[str, Any]) -> DraftTrial:
    return DraftTrial(
        linear=str(entry["linear"]),
        embedding=str(entry["embedding"]),
        lm_head=str(entry["lm_head"]),
        num_logits=int(entry["num_logits"]),
        step_cost=float(entry["step_cost"]),
        agreement=float(entry["agreement"]),
        chain=int(entry["chain"]),
        acceptance_length=float(entry["acceptance_length"]),
        speedup=float(entry["speedup"]),
        is_chosen=bool(entry["is_chosen"]),
    )


def _parse_lowered(entry: dict[str, Any] | None) -> dict[str, Any]:
    """Missing where a layer is five nodes, all of them pilotfish's."""
    if entry is None:
        return {}
    names = {key: tuple(str(item) for item in entry[key]) for key in ("operators", "unfused")}
    return {"nodes_per_layer": int(entry["nodes_per_layer"]), **names}
