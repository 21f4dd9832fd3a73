"""A call in a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Runs a call at once, beside whoever waits for it later."""

    def __init__(self, call: Callable[[], Result], name: str) -> None:
        """Begin; ``name`` is the thread's."""
        self._call = call
        self._outcome: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, whatever it is."""
        self._thread.join()

    def result(self) -> Result:
        """What the call returned; what it raised is raised here."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def _run(self) -> None:
        try:
            self._outcome.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error
