"""Step 1: a hub id, a folder or a .gguf file -> configuration, tensor source and tokenizer. Reads no tensor yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel, __version__
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from . import smollm2
from .adapters import AdaptedSource, Adapter
from .config_check import QUANTISED_KEYS, check_named, check_values, quantisation, read_config_json
from .errors import CheckpointError, ExportError, UnsupportedModelError, in_one_line
from .files import sha256_of
from .gguf import GgufReference, GgufSource, open_gguf, read_config
from .model_check import check_supported, fill_names, text_config
from .package_versions import package_versions
from .prequantised import Method, PrequantisedSource, read_method
from .rotary_tables import check_rope_type
from .sources import CheckpointSource, SafetensorsSource
from .tensor_names import model_names
from .tokenizer import TokenizerInfo, load_gguf_tokenizer, load_tokenizer

if TYPE_CHECKING:
    from .gguf import GgufFile
    from .parity import SecondReading

_HUB_FILES = ["*.json", "*.safetensors", "tokenizer.model", "*.jinja", "README.md"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that can be exported; its tensors stay on disk."""

    own_id: str  # as the user named it; of a local path only the last component
    path: Path
    config: PretrainedConfig
    tokenizer: TokenizerInfo | None
    licence: str | None
    sha256: str | None  # of the single weights file, None for a sharded checkpoint
    prequantised: Method | None = None  # how a folder's matrices are quantised; None: they are plain
    is_text_part: bool = False  # of a model with parts for images or sound, which are left out
    adapters: tuple[Adapter, ...] = ()  # that are merged into it, in this order

    @property
    def id(self) -> str:
        """What it is called where its weights count: with the adapters that are merged into it."""
        return " + ".join([self.own_id, *(adapter.id for adapter in self.adapters)])

    def source(self, model: PreTrainedModel) -> CheckpointSource:
        """Opens the tensors under the names of `model`'s state dict.

        Raises:
            CheckpointError: the file is not readable, or an adapter is of another model.
            UnsupportedModelError: an adapter that cannot be merged.
        """
        if self.path.is_file():
            return GgufSource(self.path, model)
        folder = SafetensorsSource(self.path)
        folder.rename(model_names(model, folder.names(), is_text_part=self.is_text_part))
        source: CheckpointSource = folder
        if self.prequantised is not None:
            source = PrequantisedSource(folder, self.prequantised)
        for adapter in self.adapters:
            source = AdaptedSource(source, adapter, model, self.own_id, is_text_part=self.is_text_part)
        return source

    def origin(self) -> str:
        """What tells its files, as they are now, and the packages that read them from others."""
        folders = [adapter.path for adapter in self.adapters]
        files: list[Path] = []
        if self.path.is_file():
            files += open_gguf(self.path).parts
        else:
            folders.insert(0, self.path)
        for folder in folders:
            files += sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")])
        found = [(str(file.resolve()), (info := file.stat()).st_size, info.st_mtime_ns) for file in files]
        return repr((found, package_versions(), self.config.to_dict()))

    def second_reading(self) -> SecondReading | None:
        """The model read by another way than `source` does, where there is one: for GGUF files of known kinds."""
        if not self.path.is_file():
            return None
        file = open_gguf(self.path)
        return GgufReference(file.parts) if GgufReference.knows(file.architecture) else None


def load_checkpoint(name: str) -> Checkpoint:
    """Finds a checkpoint and reads its configuration and tokenizer; "smollm2" names the default target.

    Raises:
        CheckpointError: no such file, folder or hub id, or not a language model.
        UnsupportedModelError: an architecture the exporter refuses.
        TokenizerError: a tokenizer that cannot be written as tokenizer.json.
    """
    path = Path(name)
    if not _exists(path):
        path = smollm2.fetch_default_target(smollm2.default_cache()) if name == smollm2.NAME else _download(name)
    if path.is_file():
        return _load_gguf(path)
    config, prequantised, is_text_part = _folder_config(path)
    return Checkpoint(
        own_id=path.name if path == Path(name) else name,
        path=path,
        config=config,
        tokenizer=load_tokenizer(path, config),
        licence=_hub_licence(path),
        sha256=sha256_of(single) if (single := path / "model.safetensors").is_file() else None,
        prequantised=prequantised,
        is_text_part=is_text_part,
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a path
        return False


def _load_gguf(path: Path) -> Checkpoint:
    file = open_gguf(path)
    return Checkpoint(
        own_id=path.name,
        path=path,
        config=_gguf_config(file),
        tokenizer=load_gguf_tokenizer(file),
        licence=licence if isinstance(licence := file.fields.get("general.license"), str) else None,
        sha256=sha256_of(path) if len(file.parts) == 1 else None,
    )


def _folder_config(folder: Path) -> tuple[PretrainedConfig, Method | None, bool]:
    """A folder's configuration, without what it says about quantisation, how that reads, and if it is a text part's."""
    found = read_config_json(folder)
    kind = found.get("model_type")
    if not isinstance(kind, str):
        raise CheckpointError(f"{folder} has no readable model configuration: model_type is {kind!r}")
    settings = quantisation(found, folder)
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # whatever transformers' checks of values that a user wrote raise
        raise _unreadable(folder, found, error) from error
    for key in QUANTISED_KEYS:
        vars(config).pop(key, None)
    text = text_config(config, str(folder))
    is_text_part = text is not config  # which leaves out what its class has as default
    checked = _checked(text, folder, None if is_text_part else found)
    return checked, None if settings is None else read_method(settings, str(folder)), is_text_part


def _gguf_config(file: GgufFile) -> PretrainedConfig:
    try:
        config = read_config(file)
    except ExportError:
        raise
    except Exception as error:  # whatever follows from fields of another type
        raise CheckpointError(f"{file.path} has no readable model configuration: {in_one_line(error)}") from error
    return _checked(config, file.path, None)


def _checked(config: PretrainedConfig, where: Path, found: dict[str, Any] | None) -> PretrainedConfig:
    """found: what config.json says, of a folder."""
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModelError(f"{where} is a {config.model_type!r} model, not a causal language model")
    check_supported(config, str(where))
    fill_names(config)
    if found is not None:
        check_named(found, config, str(where))
    check_values(config, str(where))
    check_rope_type(config)
    return config


def _unreadable(where: Path, found: dict[str, Any], error: Exception) -> CheckpointError:
    kind = found["model_type"]
    if kind not in CONFIG_MAPPING:
        code = "; code of its own (auto_map) is never run" if found.get("auto_map") else ""
        return CheckpointError(
            f"{where} has no readable model configuration: model_type is {kind!r}, which transformers {__version__} "
            f"does not know{code}"
        )
    return CheckpointError(f"{where} has no readable model configuration: {in_one_line(error)}")


def _download(name: str) -> Path:
    looks_like_path = name.endswith(".gguf") or name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_path:
        raise CheckpointError(f"{name} does not exist")
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise CheckpointError(f"{name} is neither a local path nor a model id on the hub") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = f"the model hub cannot be reached ({type(error).__name__})"
        raise CheckpointError(f"{name} is not a local path, and {reason}") from error


def _hub_licence(folder: Path) -> str | None:
    """The licence line of a model card's front matter."""
    card = folder / "README.md"
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines() if card.is_file() else []
    if lines[:1] != ["---"]:
        return None
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if key == "license":
            return value.strip() or None
        if line == "---":
            break
    return None


def load_tokenizer_of(name: str) -> TokenizerInfo | None:
    """The tokenizer of another checkpoint, which must be a folder or hub id."""
    return load_checkpoint(name).tokenizer
