"""Work on a GPU recorded once as a CUDA graph, and replayed without the host's share in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class Recording:
    """What a function launches.

    It may read and write only tensors that stay where they are, and running it twice must do what running it once does:
    it runs once before it is recorded, since libraries set themselves up in a first call.
    """

    def __init__(self, function: Callable[[], Tensor]) -> None:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            function()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._result = function()

    def replay(self) -> Tensor:
        """Runs it; the result is the same tensor every time."""
        self._graph.replay()
        return self._result
