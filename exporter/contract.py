"""The graph and bundle contract of native/GRAPH.md, spelled once in Python: names, dtypes, axes, formats.

tests/exporter/test_contract.py compares this file with the tables of GRAPH.md.
"""

from __future__ import annotations

from dataclasses import dataclass

DOMAIN = "pilotfish"
DOMAIN_VERSION = 1
BUNDLE_FORMAT = "pilotfish-bundle"
BUNDLE_VERSION = 1
TENSOR_ALIGNMENT = 4096  # bytes

TILE_ROWS = 16  # output rows of a packed tile
BLOCK_COLUMNS = 32  # input columns that share a scale
GROUP_COLUMNS = 64  # input columns of a packed group: two blocks


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model graph; axes are names (dynamic) or sizes."""

    name: str
    dtype: str
    axes: tuple[str | int, ...]


INPUTS = (
    Port("input_ids", "int32", ("num_tokens",)),
    Port("position_ids", "int32", ("num_tokens",)),
    Port("seq_starts", "int32", ("num_seqs + 1",)),
    Port("context_lens", "int32", ("num_seqs",)),
    Port("block_table", "int32", ("num_seqs", "max_blocks")),
    Port("tree_mask", "uint64", ("num_mask_rows",)),  # num_tokens, or 0 for a causal pass
    Port("output_rows", "int32", ("num_outputs",)),
)
ATTENTION_INPUTS = ("position_ids", "seq_starts", "context_lens", "block_table", "tree_mask")
CACHE_AXES = ("num_blocks", "block_size", "num_kv_heads", "head_dim")


@dataclass(frozen=True, slots=True)
class CacheType:
    """How a cache keeps keys and values."""

    element: str  # of its tensor: u8, where it is neither f16 nor f32
    column_elements: int  # of each column of a head of a slot
    scale_elements: int  # beside them
    most_kl: float  # nats a row that its rounding may cost beside exact weights


CACHE_TYPES = {
    "f16": CacheType("f16", 1, 0, 1e-3),
    "f32": CacheType("f32", 1, 0, 1e-3),
    "int8": CacheType("u8", 1, 2, 5e-3),
}


def cache_port(name: str, dtype: str, num_kv_heads: int, head_dim: int) -> Port:
    """A cache input."""
    kind = CACHE_TYPES[dtype]
    width = head_dim * kind.column_elements + kind.scale_elements
    return Port(name, kind.element, (*CACHE_AXES[:2], num_kv_heads, width))


def key_cache(layer: int) -> str:
    """Name of the key cache input of a layer."""
    return f"key_cache.{layer}"


def value_cache(layer: int) -> str:
    """Name of the value cache input of a layer."""
    return f"value_cache.{layer}"


def logits_port(num_logits: int | str = "num_logits") -> Port:
    """The output of every model; num_logits is vocab_size, or less in a draft with a trimmed head."""
    return Port("logits", "f32", ("num_outputs", num_logits))


# Of a target that carries a head: rows whose residual streams are wanted. Empty if the caller does not bind it.
HIDDEN_ROWS = Port("hidden_rows", "int32", ("num_hidden",))


def aux_hidden(tap: int | str) -> str:
    """Name of the residual stream into layer `tap`; tap num_layers is the stream into the final norm."""
    return f"aux_hidden.{tap}"


def aux_hidden_port(tap: int | str, hidden_size: int | str = "hidden_size") -> Port:
    """An output of a target that carries a head."""
    return Port(aux_hidden(tap), "f32", ("num_hidden", hidden_size))


# The operators of the contract, with their attributes.
OPERATORS = {
    "Embedding": ("format", "num_rows", "num_columns", "scale"),
    "Linear": ("format", "in_features", "out_features", "activation", "norm_epsilon"),
    "PagedAttention": (
        *("num_heads", "num_kv_heads", "head_dim", "rotary_dim", "interleaved", "scale", "sliding_window", "softcap"),
        *("norm_epsilon", "shared_kv"),
    ),
    "GatherRows": (),
    "Join": ("axis",),
    "RowsPart": ("part", "num_parts"),
    "NormActivation": ("norm", "activation", "norm_epsilon"),
    "RowSteps": ("row_inputs", "widths", "steps", "outputs"),
}
MOST_JOINED = 8  # inputs of a Join

# Bytes of a group: TILE_ROWS rows by GROUP_COLUMNS columns.
GROUP_BYTES = {"int4": 576, "int4_asym": 640, "int8": 1088, "f16": 2048, "f32": 4096}
FORMATS = tuple(GROUP_BYTES)

# Kinds of a RowSteps' steps by their number, as native/src/base/row_program.h has them.
ROW_STEP_KINDS = (
    *("copy", "abs", "exp", "log", "sqrt", "sigmoid", "tanh", "erf", "gelu", "gelu_tanh"),
    *("add", "sub", "mul", "div", "max", "min", "less", "not_less", "fma", "select", "join", "dot", "largest"),
)
MOST_ROW_INPUTS = 24
MOST_ROW_OUTPUTS = 8
MOST_ROW_STEPS = 256
MOST_ROW_COLUMNS = 1 << 24
