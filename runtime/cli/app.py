"""The command-line application: registers the commands and turns errors into one line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from typing import Annotated

import typer

from pilotfish.bindings import InternalError, PilotfishError, calls

from .bench import bench
from .calibrate import calibrate
from .chat import chat
from .compare import compare
from .console import note
from .doctor import doctor
from .evaluate_draft import evaluate_draft
from .evaluate_weights import evaluate_weights
from .export import export
from .info import info
from .plan import plan
from .run import run
from .serve import serve
from .train import train
from .verify import verify

EXIT_BUG = 1
EXIT_BAD_INPUT = 2
EXIT_NO_READER = 1  # as click does where a pipe is closed earlier
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

app = typer.Typer(
    help="Run a large language model faster by letting a small draft swim ahead of it, without changing its output.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (export, info, run, chat, serve, bench, compare, calibrate, verify):
    app.command()(command)
for command in (evaluate_draft, evaluate_weights, plan, doctor):
    app.command()(command)
app.add_typer(train, name="train")


def _show_version(value: bool) -> None:  # noqa: FBT001 - Typer calls it with the flag's value
    if value:
        sys.stdout.write(f"pilotfish {calls.version()}\n")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options before the command."""
    del debug, version  # main() reads the one, the callback the other


def main() -> None:
    """Entry point of the ``pilotfish`` script."""
    _replace_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an answer may have characters that the terminal's encoding lacks
    try:
        _run()
    except PilotfishError as error:
        code = _explain(error, str(error), EXIT_BUG if isinstance(error, InternalError) else EXIT_BAD_INPUT)
    except BrokenPipeError:
        code = EXIT_NO_READER
    except Exception as error:  # noqa: BLE001 - whatever it is, the user gets one line
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            code = _explain(error, f"output cannot be written: {error.strerror}", EXIT_BAD_INPUT)
        else:
            code = _explain(error, f"{type(error).__name__}: {error} (pilotfish --debug shows where)", EXIT_BUG)
    _drop_what_cannot_be_written()
    sys.exit(code)


def _run() -> None:
    """The command, and what stdout still holds of its output: when Python ends, an error can no longer be told."""
    try:
        app()
    except SystemExit:
        sys.stdout.flush()
        raise


def _drop_what_cannot_be_written() -> None:
    """Otherwise Python tries once more when it ends, complains in its own words and changes the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_closed_streams() -> None:
    """Python has None for a standard stream that the caller closed: there is nothing to read, and nobody to tell."""
    sys.stdin, sys.stderr = sys.stdin or io.StringIO(), sys.stderr or io.StringIO()
    if sys.stdout is None:
        note("error: standard output, where results go, is closed: send what is not wanted to /dev/null")
        sys.exit(EXIT_BAD_INPUT)


def _explain(error: Exception, message: str, exit_code: int) -> int:
    """One line on stderr, after the traceback if that was asked for."""
    if "--debug" in sys.argv[1:]:
        traceback.print_exception(error)
    note("error: " + " ".join(message.split()))
    return exit_code
