"""Parts that answers of both kinds have: usage, reasons, logprobs of tokens, origins."""

from __future__ import annotations

import math
import secrets
import time
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime import Engine
    from pilotfish.runtime.results import Event, Result

_LEAST_LOGPROB = -9999.0  # the protocol's stand-in for minus infinity, which JSON does not have
_REASONS = {"eos": "stop", "stop": "stop"}


def head(kind: str, prefix: str, model: str) -> dict[str, Any]:
    """The fields that an answer begins with; each chunk of a stream has the same ones."""
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": f"pilotfish-{calls.version()}",
    }


def finish_reason(result: Result) -> str:
    """The protocol's word for why a text ended.

    It is "length" where something cut the text short: max_tokens, the context, or a schema that nothing could follow
    any more. Else it is "stop".
    """
    return _REASONS.get(result.finish_reason, "length")


def usage(results: Sequence[Result], num_choices: int) -> dict[str, Any]:
    """Tokens of a request's generations; a prompt that has several choices counts once."""
    prompts = [result.stats for result in results[::num_choices]]
    num_prompt = sum(stats.num_prompt_tokens for stats in prompts)
    num_new = sum(result.stats.num_new_tokens for result in results)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_new,
        "total_tokens": num_prompt + num_new,
        "prompt_tokens_details": {
            "cached_tokens": sum(stats.num_prompt_tokens - stats.num_prefilled_target for stats in prompts)
        },
        "drafted_tokens": sum(result.stats.num_drafted for result in results),
        "accepted_tokens": sum(result.stats.num_accepted for result in results),
    }


def origins(events: Sequence[Event]) -> list[dict[str, str]]:
    """Each token's text and whether it was drafted: what the field token_origins asks for."""
    return [{"text": event.text, "origin": event.origin} for event in events]


def shown_logprob(logprob: float) -> float | None:
    """As JSON can have it; an echoed prompt's first token has none."""
    if math.isnan(logprob):
        return None
    return max(logprob, _LEAST_LOGPROB)


def spelling(engine: Engine, token_id: int) -> tuple[str, list[int]]:
    """A token as text, with replacement characters for parts of one, and as bytes."""
    spelled = engine.token_bytes(token_id)
    return spelled.decode(errors="replace"), list(spelled)
