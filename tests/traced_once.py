"""Within a test session, models of one class and configuration are traced once.

A trace has no weights, and torch takes seconds for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class TraceOnce:
    """Stands in for the exporter's `trace`."""

    def __init__(self, trace: Callable[[Any], Any]) -> None:
        self._trace = trace
        self._traces: dict[tuple[type, str], Any] = {}

    def __call__(self, model: Any, *note: Callable[[str], None]) -> Any:
        key = (type(model), model.config.to_json_string(use_diff=False))
        if key not in self._traces:
            self._traces[key] = self._trace(model, *note)
        return self._traces[key].clone()


def trace_once() -> None:
    """From now on, if the exporter is imported: whoever runs without it need not import torch for this."""
    export = sys.modules.get("pilotfish.exporter.model_export")
    if export is not None and not isinstance(export.trace, TraceOnce):
        export.trace = TraceOnce(export.trace)
