"""``--acceptance`` is the Engine's option of that name, for each command whose engine may draw tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish import Engine
from pilotfish.runtime.options import GenerateKeywords
from pilotfish.runtime.verify import PROMPTS, VerifyOptions, verify
from pilotfish.runtime.verify_checks import Amount, sampling_checks
from pilotfish.runtime.verify_oracle import SAMPLINGS
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, Source, sources_of

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

REJECTION = ("--acceptance", "rejection")
SAMPLED = ("--temperature", 1, "--seed", 3, "--draft-tokens", 3)
OPTIONS = GenerateKeywords(max_new_tokens=40, temperature=1.0, seed=3, num_draft_tokens=3)
CHAIN = Source("chain of 4", GenerateKeywords(num_draft_tokens=4))
DYNAMIC = Source("dynamic tree of 15", GenerateKeywords(tree="dynamic", tree_nodes=15))


def texts(bundle: Path) -> dict[str, str]:
    """The answer to "hi" by each rule."""
    found = {}
    for acceptance in ("equal", "rejection"):
        with Engine(bundle, threads=1, acceptance=acceptance) as engine:
            found[acceptance] = engine.chat([{"role": "user", "content": "hi"}], **OPTIONS).text
    return found


def test_run_and_chat_accept_by_rejection(tiny_bundle: Path, cli: CommandLine) -> None:
    expected = texts(tiny_bundle)
    assert expected["equal"] != expected["rejection"]
    for flags, text in (((), expected["equal"]), (REJECTION, expected["rejection"])):
        finished = cli("run", tiny_bundle, "hi", "--max-new-tokens", 40, *SAMPLED, *flags)
        assert (finished.exit_code, finished.out) == (0, text + "\n")
        finished = cli("chat", tiny_bundle, "--max-new-tokens", 40, *SAMPLED, *flags, stdin="hi\n")
        assert (finished.exit_code, finished.out) == (0, text + "\n")


def test_bench_says_that_drawn_texts_are_others(tiny_bundle: Path, cli: CommandLine) -> None:
    arguments = ("--prompt-tokens", 20, "--new-tokens", 30, "--pass-repeats", 2, "--repeats", 1, *SAMPLED)
    reports: dict[str, Any] = {}
    for acceptance in ("equal", "rejection"):
        finished = cli("bench", tiny_bundle, *arguments, "--acceptance", acceptance, "--json", "-")
        assert finished.exit_code == 0, finished.err
        reports[acceptance] = json.loads(finished.out.splitlines()[-1])
        assert reports[acceptance]["settings"]["acceptance"] == acceptance
        said = "outputs are the same" if acceptance == "equal" else "others of the same distribution, by rejection"
        assert said in " ".join(finished.out.split())
    assert [reports[name]["outputs_equal"] for name in ("equal", "rejection")] == [True, False]


def test_plan_counts_the_drafts_distributions(tiny_bundle: Path, cli: CommandLine) -> None:
    plans = [
        json.loads(cli("plan", tiny_bundle, *flags, "--json", "-").out.splitlines()[-1]) for flags in ((), REJECTION)
    ]
    sizes = [plan["total_bytes"] - plan["program_bytes"] for plan in plans]
    assert sizes[0] < sizes[1]
    with Engine(tiny_bundle, acceptance="rejection") as engine:
        assert engine.info.total_bytes - engine.info.program_bytes == sizes[1]


@pytest.mark.parametrize("command", ["run", "chat", "bench", "plan", "verify"])
def test_another_rule_is_refused(tiny_bundle: Path, cli: CommandLine, command: str) -> None:
    prompt = ("hi",) if command == "run" else ()
    finished = cli(command, tiny_bundle, *prompt, "--acceptance", "always")
    assert finished.exit_code == 2
    assert "acceptance is 'always', must be one of equal, rejection" in finished.err


def test_what_is_drawn_is_verified_by_its_distribution(tiny_bundle: Path) -> None:
    """Everything else by equality, which drawn text does not have."""
    amount = Amount(new_tokens=24, sampled_tokens=150)
    with Engine(
        tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS, num_sequences=2, acceptance="rejection"
    ) as engine:
        prompts = [engine.encode(prompt) for prompt in PROMPTS]
        checks = list(sampling_checks(engine, prompts, (CHAIN, DYNAMIC), amount, are_drawn=True))
        assert [check for check in checks if not check.passed] == []
        kinds = {(check.name.partition(":")[0], check.source) for check in checks}
        assert kinds == {
            ("distribution", "plain"),
            ("distribution", CHAIN.name),
            ("sampled equality", DYNAMIC.name),
        }
        assert len(checks) == 3 * len(SAMPLINGS)
        wrong = list(sampling_checks(engine, prompts, (CHAIN,), amount))
        assert not all(check.passed for check in wrong)


def test_the_sources_whose_tokens_are_drawn(tiny_bundle: Path) -> None:
    with Engine(tiny_bundle, threads=1) as engine:
        drawn = {source.name for source in sources_of(engine) if source.is_drawn}
    assert drawn == {f"chain of {k}" for k in (1, 2, 4, 8)}


def test_verify_opens_its_engines_with_the_rule(tiny_bundle: Path) -> None:
    options = VerifyOptions(
        prompts=PROMPTS[:2], amount=Amount(new_tokens=16, sampled_tokens=100), threads=1, acceptance="rejection"
    )
    report = verify(tiny_bundle, options, lambda _: None)
    assert [check for check in report.checks if not check.passed] == []
    names = {(check.name, check.source) for check in report.checks}
    assert (f"distribution: {SAMPLINGS[0].name}", CHAIN.name) in names
