"""What users import: Engine, and what it takes and yields.

`from pilotfish import Engine` works too, as do Event, PilotfishError, Result and Stats. Importing this package loads
neither torch nor ONNX Runtime's Python module.
"""

from pilotfish.bindings import EngineInfo, Model

from .async_stream import AsyncTokenStream
from .engine import Engine
from .engine_options import memory_plan
from .manifest import Manifest
from .options import GenerateOptions
from .results import Event, Result, Round, Stats, TokenLogprob
from .sessions import Session
from .token_stream import TokenStream

__all__ = [
    "AsyncTokenStream",
    "Engine",
    "EngineInfo",
    "Event",
    "GenerateOptions",
    "Manifest",
    "Model",
    "Result",
    "Round",
    "Session",
    "Stats",
    "TokenLogprob",
    "TokenStream",
    "memory_plan",
]
