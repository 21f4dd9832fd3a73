"""Whether a request that ran beside others gave what it gives alone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from perform import ASYNCHRONOUS, CUT_OFF, MESSAGES, Seen, alone, perform

if TYPE_CHECKING:
    from cases import Case

    from pilotfish import Engine


OF_OUR_OWN = ("InternalError", "PilotfishError", "CallbackFailedError", "OnnxRuntimeFailedError")


class Expected(NamedTuple):
    """What a quiet engine gives: the request to its end, and each error that it may end in."""

    seen: Seen
    errors: frozenset[str]


def expect(engine: Engine, case: Case) -> Expected:
    """Asks a quiet engine."""
    seen = perform(engine, alone(case))
    errors = {seen.error}
    if case.way == "batch" and seen.error:  # whose error comes first depends on who runs together
        for prompt in case.prompts:
            errors.add(perform(engine, case.of_one(prompt)).error)
    if case.way in ASYNCHRONOUS and seen.error:  # some of what is wrong with a request shows only at the first event
        errors.add(perform(engine, dataclasses.replace(case, way="astream")).error)
    return Expected(seen, frozenset(errors - {""}))


def fault_of(case: Case, found: Seen, expected: Expected, *, is_reproducible: bool) -> str:
    """What is wrong; empty if nothing is."""
    if found.error.split(":")[0] in OF_OUR_OWN:
        return "an error that is pilotfish's own bug"
    if found.error:
        may_end_so = not is_reproducible and found.error.startswith("NoTokenLeftError")
        return "" if found.error in expected.errors or may_end_so else "an error that it has not alone"
    if expected.errors:
        may_go_on = not is_reproducible or case.way in CUT_OFF
        return "" if may_go_on else "no error, and alone it has one"
    if not is_reproducible:
        return ""
    if case.way in CUT_OFF:
        return _fault_of_part(found, expected.seen)
    parts = zip(Seen._fields, found, expected.seen, strict=True)
    return ", ".join(f"other {name}" for name, ours, theirs in parts if ours != theirs)


def _fault_of_part(found: Seen, whole: Seen) -> str:
    """Of a generation that was cut off: it is a beginning of the whole, and ends as that if it is as long."""
    for name in ("token_ids", "logprobs", "top_logprobs"):
        part, all_of_it = getattr(found, name)[0], getattr(whole, name)[0]
        if part != all_of_it[: len(part)]:
            return f"other {name}"
    reason = found.finish_reasons[0]
    if reason not in (None, "cancelled"):
        return "" if (reason, found.texts) == (whole.finish_reasons[0], whole.texts) else "another end"
    # What a cancelled one holds back for a stop string or a half character comes at its end.
    is_held_back = reason == "cancelled"
    return "" if is_held_back or whole.texts[0].startswith(found.texts[0]) else "other text"


def fault_of_logprobs(engine: Engine, case: Case, found: Seen) -> str:
    """The same tokens, read as a prompt by a quiet engine, have the same logprobs."""
    for index, (ids, logprobs) in enumerate(zip(found.token_ids, found.logprobs, strict=True)):
        if not ids:  # it was cut off before the first one
            continue
        before = [] if case.options.get("echo") else prompt_of(engine, case, index)
        read = [*before, *ids][: engine.info.max_context - 1]
        again = engine.generate(read, echo=True, max_new_tokens=1, ignore_eos=True)
        found_here = logprobs[: len(read) - len(before)]
        if tuple(map(repr, again.logprobs[len(before) : len(read)])) != found_here:
            return "logprobs that are not those of its tokens"
    return ""


def prompt_of(engine: Engine, case: Case, index: int) -> list[int]:
    """The ids that it continues."""
    if case.way == "chat":
        return engine.encode_chat([{"role": "user", "content": MESSAGES[case.cut % len(MESSAGES)]}])
    return list(case.prompts[index % len(case.prompts)])  # choices have one
