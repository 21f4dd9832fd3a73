"""The tensors of a GGUF file under the names and in the row order of transformers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from pilotfish.exporter.errors import CheckpointError

from .blocks import keeps_integers, unpack_blocks
from .config import OWN_ARCHITECTURES
from .file import open_gguf
from .rope import FREQUENCY_FACTORS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from transformers import PreTrainedModel

    from pilotfish.exporter.quantise import Quantised

    from .parse import GgufTensor

Array = np.ndarray[Any, np.dtype[Any]]
_ROWS = 4096  # that are compared at a time
_ROTATES_PAIRS = ("llama",)  # neighbouring rows of a head of q and k, where transformers rotates its halves
_OWN_NAMES = (
    (re.compile(r"model\.embed_tokens\."), "token_embd."),
    (re.compile(r"model\.norm\."), "output_norm."),
    (re.compile(r"lm_head\."), "output."),
    (re.compile(r"model\.layers\.(\d+)\.self_attn\.([qkv])_proj\."), r"blk.\1.attn_\2."),
    (re.compile(r"model\.layers\.(\d+)\.self_attn\.([qk])_norm\."), r"blk.\1.attn_\2_norm."),
    (re.compile(r"model\.layers\.(\d+)\.self_attn\.o_proj\."), r"blk.\1.attn_output."),
    (re.compile(r"model\.layers\.(\d+)\.mlp\.(gate|up|down)_proj\."), r"blk.\1.ffn_\2."),
    (re.compile(r"model\.layers\.(\d+)\.input_layernorm\."), r"blk.\1.attn_norm."),
    (re.compile(r"model\.layers\.(\d+)\.post_attention_layernorm\."), r"blk.\1.ffn_norm."),
)


class GgufSource:
    """A GGUF file, or all parts of a split one."""

    def __init__(self, path: Path, model: PreTrainedModel) -> None:
        self._path = path
        file = open_gguf(path)
        if file.architecture in OWN_ARCHITECTURES:
            names = {_own_name(name): name for name in model.state_dict()}
            self._process: Callable[[str, Array], Array] = _OwnOrder(file.architecture, model.config)
        else:
            make_processor: Callable[..., Any] = TENSOR_PROCESSORS.get(file.architecture, TensorProcessor)
            processor = make_processor(config=model.config.to_dict())
            names = get_gguf_hf_weights_map(model, processor)
            self._process = lambda name, rows: np.asarray(
                processor.process(rows, name=name, tensor_key_mapping={}, parsed_parameters={}).weights
            )
        self._tensors = {
            names.get(name, name): tensor
            for name, tensor in file.tensors.items()
            if name != FREQUENCY_FACTORS  # which the configuration has been made of
        }

    def names(self) -> list[str]:
        """Those of the state dict, and the file's own for tensors that it does not have."""
        return sorted(self._tensors)

    def stored_name(self, name: str) -> str | None:
        """The same name."""
        return name if name in self._tensors else None

    def shape(self, stored: str) -> tuple[int, ...]:
        """Rows first, unlike in the file."""
        return self._tensors[stored].shape

    def equal(self, stored: str, other: str) -> bool:
        """Whether their blocks are the same."""
        mine, theirs = self._tensors[stored], self._tensors[other]
        if (mine.type, mine.shape) != (theirs.type, theirs.shape):
            return False
        starts = range(0, len(mine.data), _ROWS)
        return all(np.array_equal(mine.data[row : row + _ROWS], theirs.data[row : row + _ROWS]) for row in starts)

    def packed_type(self, stored: str) -> None:
        """The gguf package knows the layout of every type that the reader of the header lets through."""

    def _tensor(self, name: str) -> GgufTensor:
        if name not in self._tensors:
            raise CheckpointError(f"{self._path} has no tensor {name}; is the file complete?")
        return self._tensors[name]

    def read(self, name: str) -> Array:
        """A tensor, dequantised to f32."""
        tensor = self._tensor(name)
        rows = self._process(tensor.name, tensor.values())
        return np.ascontiguousarray(rows, dtype=np.float32)

    def stored_type(self, name: str) -> str | None:
        """GGUF's name of the type, such as F16 or Q4_1."""
        return self._tensors[name].type.name if name in self._tensors else None

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """The file's integers, if the format holds them, see `blocks`."""
        tensor = self._tensor(name)
        if not keeps_integers(tensor.type.name, format_name):
            return None
        order = self._process(tensor.name, np.arange(len(tensor.data), dtype=np.int64)[:, None])[:, 0]
        return unpack_blocks(tensor.data[order], tensor.type.name, format_name)


def _own_name(name: str) -> str:
    """The name that GGUF gives a parameter of a decoder of the Llama and Qwen kind."""
    for pattern, replacement in _OWN_NAMES:
        if pattern.match(name):
            return pattern.sub(replacement, name)
    return name


class _OwnOrder:
    """Rows of q and k in transformers' order."""

    def __init__(self, architecture: str, config: Any) -> None:
        self._num_heads = {}
        if architecture in _ROTATES_PAIRS:
            self._num_heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}

    def __call__(self, name: str, rows: Array) -> Array:
        num_heads = self._num_heads.get(name.split(".")[-2])
        if num_heads is None:
            return rows
        ordered: Array = rows.reshape(num_heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
        return ordered
