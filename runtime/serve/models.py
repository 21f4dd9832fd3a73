"""The bundles that are served, by name: an engine, its scheduler, and what its answers look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.runtime.reasoning import reasons
from pilotfish.runtime.tool_calls import form_of

from .errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime import Engine

    from .scheduler import Scheduler


class Model:
    """A bundle that is served."""

    def __init__(self, name: str, engine: Engine, scheduler: Scheduler) -> None:
        """``scheduler`` runs the engine's generations."""
        self.name = name
        self.engine = engine
        self.scheduler = scheduler
        self.max_context = engine.info.max_context
        manifest = engine.manifest
        self.created = int(manifest.path.stat().st_mtime)
        self.tool_call_form = form_of(manifest.tool_template or manifest.chat_template)
        self.reasons = reasons(manifest.chat_template)
        """Whether the model thinks before it answers."""
        self.reads_reasoning = "reasoning_content" in (manifest.chat_template or "")
        """Whether the template reads the thoughts of earlier answers."""
        self.has_developers = "developer" in (manifest.chat_template or "")
        """Whether the template knows the role "developer"."""


class Models:
    """All that are served."""

    def __init__(self, models: Sequence[Model]) -> None:
        """In the order in which they are listed."""
        self.all = tuple(models)
        self._by_name = {model.name: model for model in models}

    def named(self, name: str | None) -> Model:
        """The one that a request asks for; a request that names none gets the only one.

        Raises:
            ApiError: there is no such one, or a name is needed.
        """
        if name is None and len(self.all) == 1:
            return self.all[0]
        model = None if name is None else self._by_name.get(name)
        if model is None:
            asked = "model is missing" if name is None else f"model is {name!r:.200}"
            raise ApiError(
                404, f"{asked}, must be one of {', '.join(self._by_name)}", code="model_not_found", param="model"
            )
        return model
