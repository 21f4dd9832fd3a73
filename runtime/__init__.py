"""What users import: Engine, and what it yields. Never imports torch, nor ONNX Runtime's Python module."""

from pilotfish.runtime.engine import Engine, memory_plan
from pilotfish.runtime.options import GenerateOptions
from pilotfish.runtime.results import Event, Result, Stats
from pilotfish.runtime.token_stream import TokenStream

__all__ = ["Engine", "Event", "GenerateOptions", "Result", "Stats", "TokenStream", "memory_plan"]
