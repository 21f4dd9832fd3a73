"""What "quantization_config" of a folder says: which layouts its matrices can have, or why it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilotfish.exporter.errors import CheckpointError, ExportError, UnsupportedModelError, in_one_line

_BITS = (4, 8)
_INTEGERS = ("int-quantized", "naive-quantized")
_FLOATS = ("float-quantized", *_INTEGERS)
_FOUR_BIT_FLOATS = ("nvfp4-pack-quantized", "mxfp4-pack-quantized")
_COMPRESSED = ("pack-quantized", *_INTEGERS, "float-quantized", *_FOUR_BIT_FLOATS)
_MODELOPT = {
    "FP8": ("fp8",),
    "NVFP4": ("fp4",),
    "W4A16_NVFP4": ("fp4",),
    "MIXED_PRECISION": ("fp4", "fp8"),
}
_AUTO_ROUND = ("auto_round:auto_gptq", "auto_round:gptq:", "auto_round:auto_awq")  # the second one of old versions
_DEFAULT_BLOCK = (128, 128)  # of fp8 with a scale for each block


@dataclass(frozen=True, slots=True)
class Method:
    """How a folder's quantised matrices are laid out; the tensors of each one tell which of the layouts it has."""

    layouts: tuple[str, ...]  # of "gptq", "awq", "packed", "integers", "fp8", "fp4", "nf4" and "llm_int8"
    zero_is_less_one: bool = False  # GPTQ's first layout stores zero points less one
    block: tuple[int, int] = _DEFAULT_BLOCK  # rows and columns that share a scale, of fp8 with such


def read_method(settings: dict[str, Any], where: str) -> Method:
    """The layouts of a folder with these settings.

    Raises:
        CheckpointError: a setting is missing, or of another kind than it must be.
        UnsupportedModelError: a layout that is not known; the message names the setting and its value.
    """
    kind = str(settings.get("quant_method") or ("modelopt" if settings.get("quant_algo") else "unknown")).lower()
    reader = _READERS.get(kind)
    if reader is None:
        raise _refused(where, "quant_method", kind, _READERS)
    try:
        return reader(settings, where)
    except ExportError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{where} has settings of {kind} that cannot be read: {in_one_line(error)}; copy its config.json anew"
        ) from error


def _refused(where: str, name: str, value: object, known: Any) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{where} is already quantised with {name} {value!r}; known are {', '.join(map(str, known))}. Export the "
        "unquantised checkpoint or a GGUF file"
    )


def _check(settings: dict[str, Any], where: str, name: str, known: Any, default: object = None) -> Any:
    value = settings.get(name, default)
    if value not in known:
        raise _refused(where, name, value, known)
    return value


def _gptq(settings: dict[str, Any], where: str) -> Method:
    layout = _check(settings, where, "checkpoint_format", ("gptq", "gptq_v2"), "gptq")
    _check(settings, where, "bits", _BITS)  # of most matrices; each one's tensors tell its own
    return Method(("gptq",), zero_is_less_one=layout == "gptq")


def _awq(settings: dict[str, Any], where: str) -> Method:
    name = "version" if "version" in settings else "checkpoint_format"  # as GPTQModel writes it
    layout = str(settings.get(name, "gemm")).lower()
    if layout != "gemm":
        raise _refused(where, name, layout, ("gemm",))
    _check(settings, where, "bits", (4,))
    return Method(("awq",))


def _auto_round(settings: dict[str, Any], where: str) -> Method:
    _check(settings, where, "data_type", ("int",), "int")
    name = "backend" if "backend" in settings and "packing_format" not in settings else "packing_format"
    layout = str(settings.get(name, _AUTO_ROUND[0]))
    if not layout.startswith(_AUTO_ROUND):
        raise _refused(where, name, layout, _AUTO_ROUND)
    return (_awq if layout == _AUTO_ROUND[-1] else _gptq)(settings, where)


def _compressed_tensors(settings: dict[str, Any], where: str) -> Method:
    if rotations := (settings.get("transform_config") or {}).get("config_groups"):  # that a pass computes by itself
        raise _refused(where, "transform_config", ", ".join(rotations), ("models without rotations",))
    if (sparse := (settings.get("sparsity_config") or {}).get("format") or "dense") != "dense":
        raise _refused(where, "sparsity_config", sparse, ("dense matrices",))
    groups = list((settings.get("config_groups") or {}).values())
    if not groups:
        raise _refused(where, "config_groups", groups, ("groups with weights",))
    found = [_compressed_group(group, settings, where) for group in groups if group["weights"] is not None]
    blocks = {tuple(block) for group in groups if (block := (group["weights"] or {}).get("block_structure"))}
    if len(blocks) > 1:
        raise _refused(where, "block_structure", sorted(blocks), ("one for all matrices",))
    return Method(tuple(dict.fromkeys(found)), block=_block(blocks.pop() if blocks else _DEFAULT_BLOCK))


def _compressed_group(group: dict[str, Any], settings: dict[str, Any], where: str) -> str:
    layout, weights = group.get("format") or settings.get("format"), group["weights"]
    kind, bits = weights.get("type"), weights.get("num_bits")
    if layout not in _COMPRESSED:
        raise _refused(where, "format", layout, _COMPRESSED)
    if layout == "pack-quantized" and kind == "int":
        _check(weights, where, "num_bits", _BITS)
        return "packed"
    if layout in _FOUR_BIT_FLOATS:
        return "fp4"
    _check(weights, where, "num_bits", (8,))
    if layout in _INTEGERS and kind == "int":
        return "integers"
    if layout in _FLOATS and kind == "float":
        return "fp8"
    raise _refused(where, "format", f"{layout} of {bits} bits of type {kind}", _COMPRESSED)


def _fp8(settings: dict[str, Any], _where: str) -> Method:
    return Method(("fp8",), block=_block(settings.get("weight_block_size") or _DEFAULT_BLOCK))


def _modelopt(settings: dict[str, Any], where: str) -> Method:
    return Method(_MODELOPT[_check(settings, where, "quant_algo", _MODELOPT)])


def _bitsandbytes(settings: dict[str, Any], where: str) -> Method:
    if not settings.get("load_in_4bit"):
        _check(settings, where, "load_in_8bit", (True,))
        return Method(("llm_int8",))
    _check(settings, where, "bnb_4bit_quant_type", ("nf4",), "fp4")
    _check(settings, where, "bnb_4bit_quant_storage", ("uint8",), "uint8")
    return Method(("nf4",))


def _block(size: Any) -> tuple[int, int]:
    rows, columns = (int(value) for value in size)
    if rows < 1 or columns < 1:
        raise ValueError(f"a block of {rows} x {columns} weights")
    return rows, columns


_READERS = {
    "gptq": _gptq,
    "awq": _awq,
    "auto-round": _auto_round,
    "intel/auto-round": _auto_round,  # its older name
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "modelopt": _modelopt,
    "bitsandbytes": _bitsandbytes,
}
