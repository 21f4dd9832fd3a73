"""`optimum-cli export pilotfish`: installed as optimum/commands/register/pilotfish.py, where optimum looks.

Stays light: torch and the exporter are imported when the command runs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from optimum.commands.base import BaseOptimumCLICommand, CommandInfo
from optimum.commands.export.base import ExportCommand

if TYPE_CHECKING:
    from argparse import ArgumentParser

_FORMATS = ("int4", "int4_asym", "int8", "f16", "f32")


class PilotfishExportCommand(BaseOptimumCLICommand):  # type: ignore[misc]  # optimum has no types
    """Exports a target and perhaps a draft into a pilotfish bundle."""

    COMMAND = CommandInfo(name="pilotfish", help="Export a language model and its draft to a pilotfish bundle.")

    @staticmethod
    def parse_args(parser: ArgumentParser) -> None:
        """Declares the options."""
        parser.add_argument("-m", "--model", required=True, help="Hub id, folder with safetensors, or .gguf file.")
        parser.add_argument("--draft", help="The draft, given as the model is.")
        parser.add_argument("--linear", default="int4", choices=_FORMATS, help="Format of the linear layers.")
        parser.add_argument("--embedding", default="int8", choices=_FORMATS, help="Format of the embedding.")
        parser.add_argument("--lm-head", default="int8", choices=_FORMATS, help="Format of the output layer.")
        parser.add_argument("--max-positions", type=int, help="Longest context; default: the model's limit.")
        parser.add_argument("--no-parity", action="store_true", help="Skip the comparison with torch.")
        parser.add_argument("--overwrite", action="store_true", help="Replace the output folder if it exists.")
        parser.add_argument("output", help="Folder to write the bundle to.")

    def run(self) -> None:
        """Runs the export; a bad input ends with one line on stderr and exit code 2."""
        from pathlib import Path  # noqa: PLC0415 - optimum loads this file on every start

        from pilotfish.exporter import ExportError, ExportOptions, ModelFormats, export  # noqa: PLC0415

        given = self.args
        try:
            options = ExportOptions(
                target=ModelFormats(given.linear, given.embedding, given.lm_head),
                max_positions=given.max_positions,
                parity=not given.no_parity,
                overwrite=given.overwrite,
            )
            result = export(given.model, Path(given.output), draft=given.draft, options=options)
        except ExportError as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(2) from None
        for model in result.models:
            sys.stdout.write(
                f"{model.name}: {model.source}, {model.parameters / 1e6:.1f} M parameters, {model.num_layers} layers, "
                f"{model.bits_per_weight:.2f} bits a weight, {model.bytes / 1e6:.1f} MB\n"
            )


REGISTER_COMMANDS = [(PilotfishExportCommand, ExportCommand)]
