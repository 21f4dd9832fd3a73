"""What "quantization_config" of a folder says: which layout its matrices have, or why it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilotfish.exporter.errors import CheckpointError, ExportError, UnsupportedModelError, in_one_line

_BITS = (4, 8)
_PACKED, _INTEGERS, _FLOATS = "pack-quantized", ("int-quantized", "naive-quantized"), "float-quantized"


@dataclass(frozen=True, slots=True)
class Method:
    """The layout of a folder's quantised matrices."""

    layout: str  # "gptq", "awq", "packed", "integers", "fp8" or "nf4"
    bits: int
    group_size: int = -1  # input columns that share a scale; -1: all of a row
    zero_is_less_one: bool = False  # GPTQ's first layout stores zero points less one


def read_method(settings: dict[str, Any], where: str) -> Method:
    """The layout of a folder with these settings.

    Raises:
        CheckpointError: a setting is missing, or of another kind than it must be.
        UnsupportedModelError: a layout that is not known; the message names the setting and its value.
    """
    kind = str(settings.get("quant_method", settings.get("quant_algo", "unknown"))).lower()
    reader = _READERS.get(kind)
    if reader is None:
        raise _refused(where, "quant_method", kind, ", ".join(_READERS))
    try:
        return reader(settings, where)
    except ExportError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} has settings of {kind} that cannot be read: {in_one_line(error)}") from error


def _refused(where: str, name: str, value: object, known: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{where} is already quantised with {name} {value!r}; known are {known}. Export the unquantised checkpoint or "
        "a GGUF file"
    )


def _bits(settings: dict[str, Any], where: str, name: str, known: tuple[int, ...] = _BITS) -> int:
    bits = settings.get(name)
    if bits not in known:
        raise _refused(where, name, bits, " and ".join(map(str, known)))
    return int(bits)


def _gptq(settings: dict[str, Any], where: str) -> Method:
    layout = settings.get("checkpoint_format", "gptq")
    if layout not in ("gptq", "gptq_v2"):
        raise _refused(where, "checkpoint_format", layout, "gptq and gptq_v2")
    bits = _bits(settings, where, "bits")
    return Method("gptq", bits, int(settings.get("group_size", -1)), zero_is_less_one=layout == "gptq")


def _awq(settings: dict[str, Any], where: str) -> Method:
    version = str(settings.get("version", "gemm")).lower()
    if version != "gemm":
        raise _refused(where, "version", version, "gemm")
    return Method("awq", _bits(settings, where, "bits", (4,)), int(settings.get("group_size", -1)))


def _compressed_tensors(settings: dict[str, Any], where: str) -> Method:
    groups = list((settings.get("config_groups") or {}).values())
    if len(groups) != 1 or settings.get("sparsity_config", {}).get("format", "dense") != "dense":
        raise _refused(where, "config_groups", f"{len(groups)} groups", "one group of dense matrices")
    weights, layout = groups[0]["weights"], settings.get("format")
    if layout == _PACKED and weights.get("type") == "int":
        return Method("packed", _bits(weights, where, "num_bits"), int(weights.get("group_size") or -1))
    if layout in _INTEGERS and weights.get("type") == "int":
        return Method("integers", _bits(weights, where, "num_bits", (8,)), int(weights.get("group_size") or -1))
    if layout in (_FLOATS, *_INTEGERS) and weights.get("type") == "float":
        return Method("fp8", _bits(weights, where, "num_bits", (8,)))
    raise _refused(where, "format", layout, ", ".join((_PACKED, *_INTEGERS, _FLOATS)))


def _fp8(_settings: dict[str, Any], _where: str) -> Method:
    return Method("fp8", 8)


def _bitsandbytes(settings: dict[str, Any], where: str) -> Method:
    kind = settings.get("bnb_4bit_quant_type", "fp4") if settings.get("load_in_4bit") else "int8"
    if kind != "nf4":
        raise _refused(where, "bnb_4bit_quant_type", kind, "nf4")
    return Method("nf4", 4)


_READERS = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "bitsandbytes": _bitsandbytes,
}
