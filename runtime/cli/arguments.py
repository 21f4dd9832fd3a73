"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Bundle = Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder that `pilotfish export` wrote.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(help="Threads of a pass; default: one a physical core.")]
MemoryBudget = Annotated[str | None, typer.Option(help="Memory for everything, such as 6GiB; default: no limit.")]
MaxContext = Annotated[int | None, typer.Option(help="Tokens of prompt and output together.")]
MaxNewTokens = Annotated[int, typer.Option(help="Tokens to generate at most.")]
DraftTokens = Annotated[
    int | None, typer.Option(help="Tokens drafted a round; 0: plain decoding; default: as many as pay off.")
]
Source = Annotated[
    str, typer.Option(help="Where drafts come from: auto (whatever is fastest), plain, draft, lookup or lookup+draft.")
]
LookupStore = Annotated[
    str | None, typer.Option(metavar="FILE", help="Collect outputs in this file, and look up drafts in it.")
]
Calibration = Annotated[
    str, typer.Option(help="Costs that auto decides by: kept (measured once), refresh (now) or off (guessed).")
]
Tree = Annotated[
    str | None,
    typer.Option(help='A tree of drafts: children by level, as 3-2-2-1, or "dynamic"; default: a chain.'),
]
TreeNodes = Annotated[int | None, typer.Option(help="Tokens of a dynamic tree; default: 15.")]
TreeDepth = Annotated[int | None, typer.Option(help="Levels of a dynamic tree; default: 6.")]
Temperature = Annotated[float, typer.Option(help="0: greedy.")]
TopK = Annotated[int, typer.Option(help="Keep the k likeliest tokens; 0: off.")]
TopP = Annotated[float, typer.Option(help="Keep the likeliest tokens that reach this probability; 1: off.")]
MinP = Annotated[float, typer.Option(help="Keep tokens at least this fraction as likely as the likeliest; 0: off.")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same tokens; default: a fresh one.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the numbers as JSON; -: to stdout.")]
