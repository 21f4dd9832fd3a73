# The generated module: ffi and lib stay untyped, bindings/calls.py gives every function its types.

from typing import Any

ffi: Any
lib: Any
