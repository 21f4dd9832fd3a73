"""manifest.json as frozen dataclasses: the names and types of native/GRAPH.md."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pilotfish.runtime.manifest import DraftTrial  # noqa: TC001 - get_type_hints reads it

from .contract import BUNDLE_FORMAT, BUNDLE_VERSION
from .errors import BundleCorruptError, BundleVersionError
from .weights_file import StoredTensor  # noqa: TC001 - get_type_hints reads it

_T = TypeVar("_T")
_INTEGER_LIST = re.compile(r"\[\n\s+\d+(,\n\s+\d+)*\n\s+\]")  # written on one line: a map has thousands


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the bundle."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TokenizerEntry:
    """tokenizer.json and the ids the runtime needs."""

    file: str
    bytes: int
    sha256: str
    size: int
    bos_id: int | None
    eos_ids: tuple[int, ...]
    pad_id: int | None
    add_bos: bool


@dataclass(frozen=True, slots=True)
class FormatsEntry:
    """Weight formats of a model."""

    linear: str
    embedding: str
    lm_head: str


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """Where a model came from."""

    id: str
    sha256: str | None
    licence: str | None


@dataclass(frozen=True, slots=True)
class TapReference:
    """What torch has at a target's taps: the first columns of each, at the last of `ids`."""

    ids: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]  # [num_taps, columns]


@dataclass(frozen=True, slots=True)
class LoweredEntry:
    """Of a model whose layers are more than the five fused nodes."""

    nodes_per_layer: int
    operators: tuple[str, ...]  # that ONNX Runtime runs
    unfused: tuple[str, ...]  # what did not match, and where: one line for each kind of layer


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A cache of a model whose layers do not have one each of the same shape."""

    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model of the bundle."""

    graph: FileEntry
    weights: FileEntry
    tensors: tuple[StoredTensor, ...]
    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    num_logits: int
    max_positions: int
    sliding_window: int
    cache_dtype: str
    formats: FormatsEntry
    parameters: int
    source: SourceEntry
    parity: dict[str, float]
    mixture: dict[str, float] = field(default_factory=dict)  # share of the linear layers' weights that a format has
    logit_ids: tuple[int, ...] | None = None  # token of each row of the logits, ascending; None: row j is token j
    taps: tuple[int, ...] = ()  # residual streams that the graph gives out for a head
    tap_reference: TapReference | None = None
    lowered: LoweredEntry | None = None  # None: five nodes a layer, all of them ours
    trials: tuple[DraftTrial, ...] = ()  # of a draft; empty: there was nothing to choose
    caches: tuple[CacheEntry, ...] | None = None  # by number; None: one a layer, with num_kv_heads heads of head_dim


@dataclass(frozen=True, slots=True)
class HeadCacheEntry:
    """The cache of a head that has a decoder layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    cache_dtype: str


@dataclass(frozen=True, slots=True)
class HeadEntry:
    """A head on the target's residual streams."""

    kind: str
    graphs: dict[str, FileEntry]  # by role
    weights: FileEntry
    tensors: tuple[StoredTensor, ...]
    taps: tuple[int, ...]
    num_predictions: int
    state_size: int
    num_logits: int
    logit_ids: tuple[int, ...] | None
    cache: HeadCacheEntry | None
    format: str
    parameters: int
    source: str
    parity: dict[str, float] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)  # further tensors, which are those of the target
    trials: tuple[DraftTrial, ...] = ()  # empty: there was nothing to choose


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole manifest; `models` has "target" and perhaps "draft"."""

    created_by: dict[str, str]
    tokenizer: TokenizerEntry
    chat_template: str | None
    models: dict[str, ModelEntry]
    head: HeadEntry | None = None
    tool_template: str | None = None

    def to_json(self) -> str:
        """The text of manifest.json."""
        head = {"format": BUNDLE_FORMAT, "format_version": BUNDLE_VERSION}
        fields = dataclasses.asdict(self)
        for model in fields["models"].values():
            for name, left_out in (("lowered", None), ("trials", ()), ("caches", None)):
                if model[name] == left_out:
                    del model[name]
        if self.head is not None and not self.head.trials:
            del fields["head"]["trials"]
        text = json.dumps(head | fields, indent=1, ensure_ascii=False)
        return _INTEGER_LIST.sub(lambda found: " ".join(found[0].split()), text) + "\n"


def parse_manifest(text: str) -> Manifest:
    """Reads the text of manifest.json.

    Raises:
        BundleCorruptError: not JSON, not a bundle's manifest, or a field missing or of the wrong type.
        BundleVersionError: another format version.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleCorruptError(f"manifest.json is not JSON of a manifest's depth: {error}") from error
    found = data.pop("format", None) if isinstance(data, dict) else None
    if found != BUNDLE_FORMAT:
        raise BundleCorruptError(f"manifest.json has format {found!r}, expected {BUNDLE_FORMAT!r}")
    version = data.pop("format_version", None)
    if version != BUNDLE_VERSION:
        reads = f"this pilotfish reads {BUNDLE_VERSION}; export it again"
        raise BundleVersionError(f"the bundle has format version {version!r}, {reads}")
    manifest = _read(Manifest, data, "manifest")
    if "target" not in manifest.models or set(manifest.models) - {"target", "draft"}:
        names = sorted(manifest.models)
        raise BundleCorruptError(f"manifest.json lists models {names}, expected target and perhaps draft")
    return manifest


def _read(kind: type[_T], data: object, where: str) -> _T:
    """Builds a dataclass from JSON, checking each field's type."""
    if not isinstance(data, dict):
        raise BundleCorruptError(f"{where} is {type(data).__name__}, expected an object")
    hints = typing.get_type_hints(kind)
    items = dataclasses.fields(kind)  # type: ignore[arg-type]
    optional = {item.name for item in items if (item.default, item.default_factory) != (dataclasses.MISSING,) * 2}
    missing, unknown = hints.keys() - optional - data.keys(), data.keys() - hints.keys()
    if missing or unknown:
        what = f"lacks {', '.join(sorted(missing))}" if missing else f"has unknown {', '.join(sorted(unknown))}"
        raise BundleCorruptError(f"{where} {what}")
    return kind(**{name: _value(hints[name], item, f"{where}.{name}") for name, item in data.items()})


def _value(hint: Any, data: object, where: str) -> object:
    """One field: a scalar, a tuple, a dict or a nested dataclass."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _read(hint, data, where)
    if origin is tuple and isinstance(data, list):
        return tuple(_value(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(data))
    if origin is dict and isinstance(data, dict):
        return {str(key): _value(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if origin is types.UnionType:
        return None if data is None else _value(arguments[0], data, where)
    if hint is float and type(data) in (int, float):
        return float(typing.cast("float", data))
    if type(data) is not hint:
        raise BundleCorruptError(f"{where} is {data!r}, expected {getattr(hint, '__name__', hint)}")
    return data
