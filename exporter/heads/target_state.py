"""The state that heads without a decoder layer read: the target's last one, and perhaps further streams of it.

Published Medusa heads and MLP speculators read the last state alone. Those that `pilotfish train` makes with taps have
"stream_taps", a list of layers, in config.json and a matrix of the streams into them, side by side, which is added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.exporter.contract import aux_hidden
from pilotfish.exporter.errors import CheckpointError

if TYPE_CHECKING:
    import onnx_ir as ir

    from .checkpoint import HeadCheckpoint
    from .graph_builder import GraphBuilder

TAPS = "stream_taps"  # in config.json
STREAMS = "streams.weight"  # [hidden, num_taps * hidden]


def stream_taps(checkpoint: HeadCheckpoint) -> tuple[int, ...]:
    """The layers that the head's configuration names; most name none."""
    return tuple(int(tap) for tap in checkpoint.config.get(TAPS) or ())


def taps(checkpoint: HeadCheckpoint, num_layers: int) -> tuple[int, ...]:
    """The layers that the head names, then the stream before the final norm.

    Raises:
        CheckpointError: layers that the target does not have, or one twice.
    """
    named = stream_taps(checkpoint)
    if len(set(named)) != len(named) or not all(0 <= tap < num_layers for tap in named):
        raise CheckpointError(
            f"{checkpoint.id} reads the streams into layers {', '.join(map(str, named))}; it may name different ones "
            f"of the target's {num_layers}, from 0"
        )
    return (*named, num_layers)


def check_streams(checkpoint: HeadCheckpoint, hidden_size: int) -> set[str]:
    """The matrix's name, if the head has one, which then has its shape.

    Raises:
        CheckpointError: it is missing or has another shape.
    """
    named = stream_taps(checkpoint)
    if not named:
        return set()
    checkpoint.tensor(STREAMS, hidden_size, len(named) * hidden_size)
    return {STREAMS}


def read_state(graph: GraphBuilder, checkpoint: HeadCheckpoint) -> ir.Value:
    """aux_hidden.{k} of every tap -> [num_rows, hidden]."""
    target = graph.target
    *streams, last = (
        graph.input(aux_hidden(tap), "f32", ("num_rows", target.hidden_size))
        for tap in taps(checkpoint, target.num_layers)
    )
    state = graph.rms_norm(last, "final_norm", target.final_norm, target.norm_epsilon)
    if not streams:
        return state
    return graph.linear(graph.join_columns(streams), "streams", [STREAMS], residual=state)
