"""`optimum-cli export pilotfish`: installed as optimum/commands/register/pilotfish.py, where optimum looks.

Its options are those of `pilotfish export`, read off that function's signature. Stays light: torch and the exporter are
imported when the command runs.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from typing import TYPE_CHECKING, Any

from optimum.commands.base import BaseOptimumCLICommand, CommandInfo
from optimum.commands.export.base import ExportCommand

if TYPE_CHECKING:
    from argparse import ArgumentParser

# Where optimum's other export commands spell it in another way.
_FLAGS = {"target": ("-m", "--model"), "out_dir": ("out_dir",)}


class PilotfishExportCommand(BaseOptimumCLICommand):  # type: ignore[misc]  # optimum has no types
    """Exports a target and perhaps a draft into a pilotfish bundle."""

    COMMAND = CommandInfo(name="pilotfish", help="Export a language model and its draft to a pilotfish bundle.")

    @staticmethod
    def parse_args(parser: ArgumentParser) -> None:
        """Declares the options."""
        from pilotfish.runtime.cli.export import export  # noqa: PLC0415 - optimum loads this file on every start

        hints = typing.get_type_hints(export, include_extras=True)
        for name, parameter in inspect.signature(export).parameters.items():
            _declare(parser, name, hints[name], parameter.default)

    def run(self) -> None:
        """Runs the export; a bad input ends with one line on stderr and exit code 2."""
        from pilotfish.bindings import PilotfishError  # noqa: PLC0415 - as above
        from pilotfish.runtime.cli.export import export  # noqa: PLC0415

        given = vars(self.args)
        try:
            export(**{name: given[name] for name in inspect.signature(export).parameters})
        except PilotfishError as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(2) from None


def _declare(parser: ArgumentParser, name: str, hint: Any, default: Any) -> None:
    """One Typer option as an argparse one."""
    kind, option = typing.get_args(hint)
    if typing.get_origin(kind) is types.UnionType:
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    flags = _FLAGS.get(name) or option.param_decls or (f"--{name.replace('_', '-')}",)
    given: dict[str, Any] = {"help": option.help}
    if flags[0].startswith("-"):
        given |= {"dest": name}
    if kind is bool:
        given |= {"action": "store_true"}
    elif typing.get_origin(kind) is list:
        given |= {"type": typing.get_args(kind)[0], "metavar": option.metavar, "action": "append"}
    else:
        given |= {"type": kind, "metavar": option.metavar}
    if default is inspect.Parameter.empty:
        given |= {"required": True} if flags[0].startswith("-") else {}
    else:
        given |= {"default": default}
    parser.add_argument(*flags, **given)


REGISTER_COMMANDS = [(PilotfishExportCommand, ExportCommand)]
