"""``pilotfish serve``: bundles behind the OpenAI protocol, and a chat page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.bindings import InvalidArgumentError, UnsupportedError, limits
from pilotfish.runtime.memory import parse_bytes
from pilotfish.runtime.serve.options import DEFAULTS, ServeOptions

from .console import note, note_device
from .flags import EngineFlags, LearningFlags, with_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_PORT = 65535
MOST_WAITING = 100_000
MOST_SECONDS = 7 * 86400
Bundles = Annotated[list[str], typer.Argument(metavar="BUNDLE...", help="Folders that `pilotfish export` wrote.")]
Name = Annotated[
    list[str] | None,
    typer.Option(help="What requests call a bundle; once for each, in their order; default: the folders' names."),
]
Host = Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0: every one of this machine.")]
Port = Annotated[int, typer.Option(min=0, max=MOST_PORT, help="0: any that is free.")]
ApiKey = Annotated[
    str | None,
    typer.Option(envvar="PILOTFISH_API_KEY", help="Key that clients must send; default: none is needed."),
]
NumSequences = Annotated[
    int,
    typer.Option("--num-sequences", min=1, max=limits.MOST_TOGETHER, help="Generations of a bundle that run at once."),
]
MaxQueue = Annotated[int, typer.Option(min=0, max=MOST_WAITING, help="Generations of a bundle that may wait.")]
MaxWait = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=limits.MOST_WAIT_MS,
        help="Milliseconds that a chunk of a new prompt may hold up generations that run; default: no bound.",
    ),
]
MaxRequest = Annotated[str, typer.Option(help="Size that a request may have.")]
TimeLimit = Annotated[float, typer.Option(min=0.001, max=MOST_SECONDS, help="Seconds that a request may take.")]
Grace = Annotated[
    int, typer.Option(min=0, max=MOST_SECONDS, help="Seconds that what runs has to finish after SIGTERM or Ctrl-C.")
]


@with_groups
def serve(
    bundles: Bundles,
    *,
    name: Name = None,
    host: Host = DEFAULTS.host,
    port: Port = DEFAULTS.port,
    api_key: ApiKey = DEFAULTS.api_key,
    num_sequences: NumSequences = DEFAULTS.num_sequences,
    max_queue: MaxQueue = DEFAULTS.most_waiting,
    max_wait_ms: MaxWait = None,
    max_request: MaxRequest = f"{DEFAULTS.most_body_bytes >> 20}MiB",
    time_limit: TimeLimit = DEFAULTS.most_seconds,
    grace: Grace = DEFAULTS.grace_seconds,
    engine_flags: EngineFlags,
    learning: LearningFlags,
) -> None:
    """Serve bundles to programs that speak the OpenAI protocol, and a chat page, until Ctrl-C or SIGTERM."""
    named = _named(bundles, name)
    if api_key is not None and not api_key.strip():
        raise InvalidArgumentError("--api-key is empty: leave it out, or give a key")
    if learning.lookup_store is not None and len(bundles) > 1:
        raise InvalidArgumentError(f"--lookup-store belongs to one bundle, but {len(bundles)} are given")
    try:
        from pilotfish.runtime.serve import server  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError(f"serving needs {error.name}: pip install 'pilotfish[serve]'") from error
    options = ServeOptions(
        host=host,
        port=port,
        api_key=api_key,
        num_sequences=num_sequences,
        most_waiting=max_queue,
        most_body_bytes=parse_bytes(max_request),
        most_seconds=time_limit,
        grace_seconds=grace,
    )
    keywords = engine_flags.keywords() | learning.keywords() | {"max_wait_ms": max_wait_ms}
    memory_budget = keywords.pop("memory_budget")
    note_device(engine_flags.device)
    server.serve(
        named,
        options,
        memory_budget=memory_budget,
        engine_keywords=keywords,
        on_ready=lambda _, address: _announce(address, named, api_key),
    )
    note("stopped")


def _named(bundles: Sequence[str], names: Sequence[str] | None) -> dict[str, str]:
    """Folders by name."""
    if names and len(names) != len(bundles):
        raise InvalidArgumentError(
            f"--name is given {len(names)} times, must be once for each of {len(bundles)} bundles"
        )
    given = names or [Path(bundle).resolve().name for bundle in bundles]
    if "" in given or len(set(given)) < len(given):
        raise InvalidArgumentError(f"the bundles' names are {', '.join(given)}, must differ: give each a --name")
    return dict(zip(given, bundles, strict=True))


def _announce(address: str, named: dict[str, str], api_key: str | None) -> None:
    note(f"serving {', '.join(named)} at {address}, with a chat page there, and the OpenAI protocol at {address}/v1")
    if api_key is None and not address.startswith(("http://127.", "http://[::1]")):
        note("whoever reaches this address may use it: --api-key KEY asks for a key")
