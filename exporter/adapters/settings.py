"""adapter_config.json: what of it decides the merged weights; everything else in it is known, or refused by name."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE = "adapter_config.json"
_READ = {"peft_type", "base_model_name_or_path", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"}
_READ |= {"use_dora", "init_lora_weights"}
_OF_TRAINING = {  # or said again by the tensors that are there
    *("auto_mapping", "bias", "corda_config", "ensure_weight_tying", "ephemeral_gpu_offload", "eva_config"),
    *("exclude_modules", "fan_in_fan_out", "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config"),
    *("lora_dropout", "lora_ga_config", "megatron_core", "modules_to_save", "peft_version", "qalora_group_size"),
    *("revision", "runtime_config", "target_modules", "task_type"),
}
_LISTS = ("target_modules", "modules_to_save")  # which may be regular expressions instead
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # others change the weights of the base too
_MODULE_NAME = re.compile(r"\^?[\w.]+")
_MOST = 1 << 20  # of ranks and alphas


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """What an adapter's configuration says about its tensors."""

    base: str | None  # only a hint: people rename folders
    rank: float
    alpha: float
    ranks: Mapping[str, float]  # by ending of a module's name
    alphas: Mapping[str, float]
    is_rank_stabilised: bool
    is_dora: bool
    modules: tuple[str, ...]  # endings of the names of modules that it says it changes

    def rank_of(self, module: str) -> float:
        """The rank that a module's pair is said to have."""
        return _of(self.ranks, module, self.rank)

    def scaling_of(self, module: str) -> float:
        """What the product of a module's pair is multiplied with (for rsLoRA Kalajdzievski, 2023)."""
        rank = self.rank_of(module)
        return _of(self.alphas, module, self.alpha) / (math.sqrt(rank) if self.is_rank_stabilised else rank)


def read_settings(folder: Path) -> AdapterSettings:
    """Reads the configuration of an adapter's folder.

    Raises:
        CheckpointError: there is none, or a value of it is of no use.
        UnsupportedModelError: another kind of adapter than LoRA, or a variant that cannot be merged.
    """
    found = _json_object(folder / FILE)
    kind = found.get("peft_type", "LORA")
    if kind != "LORA":
        raise UnsupportedModelError(f"{folder} is an adapter of type {kind!r}; LORA is supported")
    for key, value in found.items():
        if key not in _READ | _OF_TRAINING and value not in (None, False, [], {}, ""):
            raise UnsupportedModelError(
                f"{folder} has {key} = {value!r}, which is not merged; merge it with peft's merge_and_unload() and "
                "export the result"
            )
    start = found.get("init_lora_weights")
    if not isinstance(start, (bool, str, type(None))) or start not in _PLAIN_STARTS:
        raise UnsupportedModelError(
            f"{folder} has init_lora_weights = {start!r}, which changes the base's weights as well; save it as a plain "
            "LoRA (path_initial_model_for_weight_conversion of peft's save_pretrained)"
        )
    base = found.get("base_model_name_or_path")
    return AdapterSettings(
        base=base if isinstance(base, str) and base else None,
        rank=_number(folder, "r", found.get("r", 8)),
        alpha=_number(folder, "lora_alpha", found.get("lora_alpha", 8)),
        ranks=_pattern(folder, "rank_pattern", found),
        alphas=_pattern(folder, "alpha_pattern", found),
        is_rank_stabilised=_flag(folder, "use_rslora", found),
        is_dora=_flag(folder, "use_dora", found),
        modules=tuple(module for name in _LISTS if isinstance(found.get(name), list) for module in found[name]),
    )


def _of(pattern: Mapping[str, float], module: str, default: float) -> float:
    """The first entry that a module's name ends with, or that it is, where it begins with ^."""
    for key, value in pattern.items():
        name = key.removeprefix("^")
        if module == name or (name == key and module.endswith(f".{name}")):
            return value
    return default


def _flag(folder: Path, name: str, found: Mapping[str, Any]) -> bool:
    value = found.get(name) or False
    if not isinstance(value, bool):
        raise CheckpointError(f"{folder} has {name} = {value!r}; it must be true or false")
    return value


def _pattern(folder: Path, name: str, found: Mapping[str, Any]) -> dict[str, float]:
    pattern = found.get(name) or {}
    if not isinstance(pattern, dict):
        raise CheckpointError(f"{folder} has {name} = {pattern!r}; it must map names of modules to numbers")
    for key in pattern:
        if not _MODULE_NAME.fullmatch(key.replace("\\.", ".")):
            raise UnsupportedModelError(
                f"{folder} has {key!r} in its {name}; names of modules are supported, other regular expressions are not"
            )
    return {key.replace("\\.", "."): _number(folder, f"{name}[{key!r}]", value) for key, value in pattern.items()}


def _number(folder: Path, name: str, value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _MOST:  # type: ignore[operator]
        raise CheckpointError(f"{folder} has {name} = {value!r}; it must be a number above 0, at most {_MOST}")
    return value  # type: ignore[return-value]


def _json_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"{path.parent} is not an adapter's folder: it has no {FILE}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is {type(found).__name__}, no object")
    return found
