"""The cffi module, once the library that it loaded is known to be the one that it was built with."""

from __future__ import annotations

from ._ffi import ffi, lib

__all__ = ["ffi", "lib"]

_loaded, _built = (str(ffi.string(pointer).decode()) for pointer in (lib.pf_version(), lib.PF_VERSION))
if _loaded != _built:
    message = f"libpilotfish is version {_loaded}, this package was built against {_built}: reinstall pilotfish"
    raise ImportError(message)
