"""The training command with FSDP2 on CPUs, for torchrun: accelerate shards on accelerators only, torch anywhere."""

from __future__ import annotations

from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

from pilotfish.exporter.training.__main__ import main

_init = AcceleratorState.__init__


def _init_sharded(self: AcceleratorState, *args: Any, **options: Any) -> None:
    _init(self, *args, **options)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        self.fsdp_plugin = options["fsdp_plugin"]


AcceleratorState.__init__ = _init_sharded  # type: ignore[method-assign]
raise SystemExit(main())
