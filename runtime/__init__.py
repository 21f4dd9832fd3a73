"""What users import: Engine, and what it yields. Never imports torch, nor ONNX Runtime's Python module."""

from .async_stream import AsyncTokenStream
from .engine import Engine
from .engine_options import memory_plan
from .options import GenerateOptions
from .results import Event, Result, Stats, TokenLogprob
from .token_stream import TokenStream

__all__ = [
    "AsyncTokenStream",
    "Engine",
    "Event",
    "GenerateOptions",
    "Result",
    "Stats",
    "TokenLogprob",
    "TokenStream",
    "memory_plan",
]
