"""What a kind of completion is: how its requests are read, prepared and answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from pilotfish.runtime import TokenStream
    from pilotfish.runtime.results import Event, Result

    from .asked import Asked
    from .generations import Generations
    from .models import Model


class Request(Protocol):
    """A request that was read."""

    @property
    def asked(self) -> Asked:
        """What both kinds have."""


RequestType = TypeVar("RequestType", bound=Request)


@dataclass(frozen=True, slots=True)
class Kind(Generic[RequestType]):
    """Of requests."""

    read: Callable[[bytes], RequestType]
    """Its body."""
    prepare: Callable[[Model, RequestType], list[Callable[[], TokenStream]]]
    """What opens its generations; takes a while."""
    whole: Callable[[Model, RequestType, Sequence[tuple[Result, Sequence[Event]]]], dict[str, Any]]
    """Its answer, of all results and events."""
    chunks: Callable[[Model, RequestType, Generations], AsyncGenerator[dict[str, Any], None]]
    """Its answer where it is streamed."""
