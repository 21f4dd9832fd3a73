"""Step 1: a hub id, a folder or a .gguf file -> configuration, tensor source and tokenizer. Reads no tensor yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel, __version__
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from . import smollm2
from .config_check import check_named, check_values, read_config
from .errors import CheckpointError, UnsupportedModelError, in_one_line
from .files import sha256_of
from .rotary_tables import check_rope_type
from .sources import CheckpointSource, GgufSource, SafetensorsSource, open_gguf
from .tokenizer import TokenizerInfo, load_tokenizer

_HUB_FILES = ["*.json", "*.safetensors", "tokenizer.model", "*.jinja", "README.md"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that can be exported; its tensors stay on disk."""

    id: str  # as the user named it; of a local path only the last component
    path: Path
    config: PretrainedConfig
    tokenizer: TokenizerInfo | None
    licence: str | None
    sha256: str | None  # of the single weights file, None for a sharded checkpoint

    def source(self, model: PreTrainedModel) -> CheckpointSource:
        """Opens the tensors under the names of `model`'s state dict.

        Raises:
            CheckpointError: the file is not readable.
        """
        return GgufSource(self.path, model) if self.path.is_file() else SafetensorsSource(self.path)


def load_checkpoint(name: str) -> Checkpoint:
    """Finds a checkpoint and reads its configuration and tokenizer; "smollm2" names the default target.

    Raises:
        CheckpointError: no such file, folder or hub id, or not a language model.
        UnsupportedModelError: an architecture the exporter refuses.
        TokenizerError: a tokenizer that cannot be written as tokenizer.json.
    """
    path = Path(name)
    if not path.exists():
        path = smollm2.fetch_default_target(smollm2.default_cache()) if name == smollm2.NAME else _download(name)
    if path.is_file():
        return _load_gguf(path)
    config = _config(str(path), None)
    return Checkpoint(
        id=path.name if path == Path(name) else name,
        path=path,
        config=config,
        tokenizer=load_tokenizer(str(path), None, config),
        licence=_hub_licence(path),
        sha256=sha256_of(single) if (single := path / "model.safetensors").is_file() else None,
    )


def _load_gguf(path: Path) -> Checkpoint:
    fields = open_gguf(path).fields
    folder, file = str(path.parent), path.name
    config = _config(folder, file)
    licence = fields["general.license"].contents() if "general.license" in fields else None
    return Checkpoint(path.name, path, config, load_tokenizer(folder, file, config), licence, sha256_of(path))


def _config(folder: str, gguf_file: str | None) -> PretrainedConfig:
    where = str(Path(folder) / gguf_file) if gguf_file else folder
    found = None if gguf_file else read_config(Path(folder))
    if found is not None and not isinstance(found.get("model_type"), str):
        kind = found.get("model_type")
        raise CheckpointError(f"{where} has no readable model configuration: model_type is {kind!r}")
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(
            folder, trust_remote_code=False, **({"gguf_file": gguf_file} if gguf_file else {})
        )
    except Exception as error:  # whatever transformers' checks of values that a user wrote raise
        raise _unreadable(where, found, error) from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModelError(f"{where} is a {config.model_type!r} model, not a causal language model")
    if found is not None:
        check_named(found, config, where)
    check_values(config, where)
    check_rope_type(config)
    return config


def _unreadable(where: str, found: dict[str, Any] | None, error: Exception) -> CheckpointError:
    kind = None if found is None else found.get("model_type")
    if found is not None and kind not in CONFIG_MAPPING:
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
