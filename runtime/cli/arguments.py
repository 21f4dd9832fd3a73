"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from pilotfish.bindings import InvalidArgumentError, limits

from .console import check_json

Bundle = Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder that `pilotfish export` wrote.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or, to choose one of several GPUs, cuda:1.")]
Threads = Annotated[
    int | None, typer.Option(help="Threads of a pass; default: one a physical core, at most the CPU quota.")
]
MemoryBudget = Annotated[str | None, typer.Option(help="Memory for everything, such as 6GiB; default: no limit.")]
MaxContext = Annotated[
    int | None, typer.Option(help="Tokens of prompt and output together; default: the model's limit, at most 4096.")
]
MaxNewTokens = Annotated[int, typer.Option(help="Tokens to generate at most.")]
DraftTokens = Annotated[
    int | None,
    typer.Option("--draft-tokens", help="Tokens drafted a round; 0: plain decoding; default: as many as pay off."),
]
Source = Annotated[
    str,
    typer.Option(
        help="Where drafts come from: auto (the fastest), plain, draft, head, lookup, lookup+draft or lookup+head."
    ),
]
LookupStore = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Collect outputs in this file, and look up drafts there; default: none."),
]
Acceptance = Annotated[
    str,
    typer.Option(
        help="When sampling, keep a drafted token that is the target's choice (equal: plain decoding's text for the "
        "seed), or accept what was drawn (rejection: the same distribution, another text)."
    ),
]
Calibration = Annotated[
    str, typer.Option(help="Costs that auto decides by: kept (measured once), refresh (now) or off (guessed).")
]
Tree = Annotated[
    str | None,
    typer.Option(help='"dynamic": a tree of the likeliest drafts; default: a chain.'),
]
TreeNodes = Annotated[
    int | None, typer.Option(help=f"Tokens of a dynamic tree; default: {limits.ENGINE.max_draft_tokens}.")
]
TreeDepth = Annotated[
    int | None, typer.Option(help=f"Levels of a dynamic tree; default: {limits.DEFAULT_TREE_DEPTH} at most.")
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(metavar="ID=BIAS", help="Add to a token's score; -inf bans it; may be repeated."),
]
MinNewTokens = Annotated[int, typer.Option(help="Tokens before which nothing ends the text.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End the text at this string; may be repeated.")]
StopId = Annotated[list[int] | None, typer.Option(metavar="ID", help="End the text at this token id; may be repeated.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on after the model's end of text.")]
Logprobs = Annotated[int, typer.Option(help="Report so many likeliest tokens with each one, in the JSON.")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same tokens; default: a fresh one.")]
MeasuredSeed = Annotated[int, typer.Option("--seed", help="Of the texts, where a temperature is given.")]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the numbers as JSON; -: to stdout.", callback=check_json),
]


def parse_logit_bias(values: list[str] | None) -> dict[int, float]:
    """The option logit_bias of ``--logit-bias`` flags."""
    biases: dict[int, float] = {}
    for value in values or ():
        token_id, _, bias = value.partition("=")
        try:
            key, number = int(token_id), float(bias)
        except ValueError as error:
            raise InvalidArgumentError(f"--logit-bias is {value!r}, must be ID=BIAS, as 42=-1.5") from error
        if key in biases:
            raise InvalidArgumentError(f"--logit-bias names id {key} twice")
        biases[key] = number
    return biases
