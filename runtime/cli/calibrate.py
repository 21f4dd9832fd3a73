"""``pilotfish calibrate``: what passes cost on this machine, measured now and kept."""

from __future__ import annotations

import time

from pilotfish.bindings import InvalidArgumentError, Model
from pilotfish.bindings.operating_system import cache_folder
from pilotfish.runtime.files import why_not_writable

from .arguments import Bundle, Json
from .console import note_device, out, show, table, write_json
from .flags import EngineFlags, with_groups
from .loading import open_engine

ROWS = (1, 2, 3, 4, 6, 8)
CONTEXTS = (32, 512)
_CLOCK_SECONDS = 2  # by which a file system's clock may be behind


@with_groups
def calibrate(bundle: Bundle, *, engine_flags: EngineFlags, json_file: Json = None) -> None:
    """Measure what passes cost here, for the source auto."""
    if reason := why_not_writable(str(cache_folder() / "calibration"), makes_folders=True):
        raise InvalidArgumentError(f"nothing can be kept in {cache_folder()}: {reason}; set XDG_CACHE_HOME")
    started = time.time()
    note_device(engine_flags.device)
    with open_engine(bundle, **engine_flags.keywords(), calibration="refresh") as engine:
        models = {"target": Model.TARGET, "draft": Model.DRAFT} if engine.info.has_draft else {"target": Model.TARGET}
        costs = {
            name: {
                str(context): {str(rows): 1e3 * engine.pass_cost(rows, context=context, model=model) for rows in ROWS}
                for context in CONTEXTS
            }
            for name, model in models.items()
        }
    rows = [
        (f"{name}, after {context} tokens", *(f"{milliseconds:.2f}" for milliseconds in by_rows.values()))
        for name, by_context in costs.items()
        for context, by_rows in by_context.items()
    ]
    out().print(table("ms of a pass", ("rows", *map(str, ROWS)), rows))
    if not any(file.stat().st_mtime >= started - _CLOCK_SECONDS for file in cache_folder().glob("calibration-*.json")):
        raise InvalidArgumentError(f"nothing could be kept in {cache_folder()}, for want of room perhaps")
    show(f"kept in {cache_folder()}")
    write_json(json_file, {"ms": costs, "folder": str(cache_folder())})
