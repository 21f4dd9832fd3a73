"""Folders whose matrices are integers already: GPTQ, AWQ, compressed-tensors, FP8 and bitsandbytes' NF4."""

from .method import Method, read_method
from .source import PrequantisedSource

__all__ = ["Method", "PrequantisedSource", "read_method"]
