"""The commands: results on stdout, notes on stderr, numbers as JSON."""

from __future__ import annotations

import itertools
import json
import operator
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish import Engine
from pilotfish.runtime.cli.console import out, table

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine


def test_run_streams_the_answer_to_stdout_and_the_numbers_to_stderr(
    tiny_bundle: Path, cli: CommandLine, tmp_path: Path
) -> None:
    numbers = tmp_path / "run.json"
    finished = cli("run", tiny_bundle, "hi", "--max-new-tokens", 12, "--json", numbers)
    with Engine(tiny_bundle, threads=1) as engine:
        expected = engine.chat([{"role": "user", "content": "hi"}], max_new_tokens=12)
    assert (finished.exit_code, finished.out) == (0, expected.text + "\n")
    assert f"{expected.stats.num_new_tokens} new tokens" in finished.err
    content = json.loads(numbers.read_text())
    assert content["token_ids"] == list(expected.token_ids)
    assert content["stats"]["num_accepted"] == expected.stats.num_accepted


def test_run_continues_a_raw_prompt_from_stdin(tiny_bundle: Path, cli: CommandLine) -> None:
    finished = cli("run", tiny_bundle, "-", "--raw", "--max-new-tokens", 12, stdin="once")
    with Engine(tiny_bundle, threads=1) as engine:
        assert finished.out == engine.generate("once", max_new_tokens=12).text + "\n"


def test_chat_remembers_the_conversation_until_it_is_reset(tiny_bundle: Path, cli: CommandLine) -> None:
    lines = ["hi", "again", "/stats", "/reset", "/system be brief", "hi", "/nonsense", ""]
    finished = cli("chat", tiny_bundle, "--max-new-tokens", 8, stdin="\n".join(lines))
    user, again = ({"role": "user", "content": text} for text in ("hi", "again"))
    with Engine(tiny_bundle, threads=1) as engine:
        first = engine.chat([user], max_new_tokens=8).text
        second = engine.chat([user, {"role": "assistant", "content": first}, again], max_new_tokens=8).text
        third = engine.chat([{"role": "system", "content": "be brief"}, user], max_new_tokens=8).text
    assert finished.exit_code == 2  # /nonsense is no command, and nobody sits there to see it
    assert finished.out == f"{first}\n{second}\n{third}\n"
    for words in ("new tokens at", "conversation forgotten", "system message set", "unknown command /nonsense"):
        assert words in finished.err


def test_chat_goes_on_after_a_message_that_does_not_fit(tiny_bundle: Path, cli: CommandLine) -> None:
    finished = cli("chat", tiny_bundle, "--max-new-tokens", 4, stdin="x" * 500 + "\nhi\n")
    assert finished.exit_code == 2
    assert "/reset starts anew" in finished.err
    assert finished.out.count("\n") == 1


def test_info_and_plan(tiny_bundle: Path, cli: CommandLine) -> None:
    info = cli("info", tiny_bundle, "--json", "-")
    assert info.exit_code == 0
    assert "linear int4" in info.out
    assert json.loads(info.out.splitlines()[-1])["tokenizer"]["size"] == 258
    plan = cli("plan", tiny_bundle, "--max-context", 128, "--json", "-")
    numbers = json.loads(plan.out.splitlines()[-1])
    assert numbers["max_context"] == 128
    parts = [numbers[key] for key in numbers if key.endswith("_bytes") and key != "total_bytes"]
    assert numbers["total_bytes"] == sum(parts)


def test_the_plan_is_what_the_engine_reports(tiny_bundle: Path, cli: CommandLine) -> None:
    planned = json.loads(cli("plan", tiny_bundle, "--json", "-").out.splitlines()[-1])
    with Engine(tiny_bundle) as engine:
        own_bytes = engine.info.total_bytes - engine.info.program_bytes
    assert planned["total_bytes"] - planned["program_bytes"] == own_bytes


def test_doctor_names_what_will_be_used(cli: CommandLine) -> None:
    finished = cli("doctor", "--json", "-")
    assert finished.exit_code == 0
    facts = json.loads(finished.out.splitlines()[-1])
    assert facts["CPU kernels"] in ("avx512vnni", "avx2", "i8mm", "dotprod", "neon", "portable")
    assert "libonnxruntime.so" in facts["ONNX Runtime"]
    assert "CUDA provider" in facts


def test_tables_show_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    out().print(table("doctor", ("what", "found"), [("remedy", "pip install 'pilotfish[cuda]'")]))
    assert "pip install 'pilotfish[cuda]'" in capsys.readouterr().out


def test_a_gpu_is_planned_for_where_there_is_none(tiny_bundle: Path, cli: CommandLine) -> None:
    on_cpu, on_gpu = (
        json.loads(
            cli("plan", tiny_bundle, "--device", device, "--memory-budget", "64GiB", "--json", "-").out.splitlines()[-1]
        )
        for device in ("cpu", "cuda")
    )
    assert on_gpu["runtime_bytes"] > 5 * on_cpu["runtime_bytes"]
    assert on_gpu["max_context"] == on_cpu["max_context"]
    small = cli("plan", tiny_bundle, "--device", "cuda", "--memory-budget", "100MiB")
    assert small.exit_code == 2
    assert "target weights" in small.out


def bench(cli: CommandLine, *arguments: object) -> dict[str, Any]:
    finished = cli("bench", *arguments, "--pass-repeats", 2, "--repeats", 2, "--json", "-")
    assert finished.exit_code == 0, finished.err
    report = json.loads(finished.out.splitlines()[-1])
    assert isinstance(report, dict)
    return report


def test_bench_measures_both_modes(tiny_bundle: Path, cli: CommandLine) -> None:
    report = bench(cli, tiny_bundle, "--prompt-tokens", 40, "--new-tokens", 30)
    assert report.keys() >= {"schema", "machine", "bundle", "runs", "verify_ms", "draft_ms", "settings"}
    assert [run["mode"] for run in report["runs"]] == ["plain", "draft", "lookup", "lookup+draft", "auto"]
    for run in report["runs"]:
        speed = run["tokens_per_s"]
        assert 0 < speed["min"] <= speed["median"] <= speed["max"]
        assert 0 < run["tpot_ms"]["p50"] <= run["tpot_ms"]["p99"]
        assert run["ttft_ms"] > 0
        assert run["overhead_share"] > 0
        assert run["peak_memory_bytes"] > 2**20
    plain, draft = report["runs"][:2]
    assert (plain["acceptance_rate"], plain["acceptance_length"]) == (None, 1.0)
    assert 0 < draft["acceptance_rate"] < 1 < draft["acceptance_length"] <= 5
    assert plain["acceptance_by_position"] == []
    reached = itertools.accumulate(draft["acceptance_by_position"], operator.mul)
    assert 1 + sum(reached) == pytest.approx(draft["acceptance_length"])
    assert report["outputs_equal"] is True
    assert list(report["verify_ms"]) == ["1", "2", "4", "8", "16"]
    assert min(*report["verify_ms"].values(), report["draft_ms"]) > 0


def test_bench_groups_a_prompt_file_by_category(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    separator = "\u2028"  # which str.splitlines() takes for a line's end
    lines = [{"category": name, "prompt": f"{name}{separator}{index}"} for name in ("b", "a") for index in range(2)]
    prompts.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    report = bench(cli, tiny_bundle, "--prompts", prompts, "--new-tokens", 8)
    assert list(report["categories"]) == ["a", "b"]
    assert report["runs"][0]["samples"] == 8
    assert set(report["categories"]["a"]) == {"plain", "draft", "lookup", "lookup+draft", "auto"}
    assert all(speed > 0 for speeds in report["categories"].values() for speed in speeds.values())
    assert all(values["speedup"] > 0 for values in report["category_details"]["b"].values())


def test_bench_measures_a_tree_beside_them(tiny_bundle: Path, cli: CommandLine) -> None:
    report = bench(cli, tiny_bundle, "--prompt-tokens", 20, "--new-tokens", 30, "--tree", "dynamic", "--tree-depth", 4)
    assert [run["mode"] for run in report["runs"]] == ["plain", "draft", "lookup", "lookup+draft", "auto", "tree"]
    assert report["runs"][-1]["acceptance_length"] > 1
    assert report["outputs_equal"] is True
    assert report["settings"]["tree"] == "dynamic"
    assert report["category_details"]["fixed"]["tree"]["speedup"] > 0


def test_bench_measures_sampled_text(tiny_bundle: Path, cli: CommandLine) -> None:
    """Every way to draft has the seed's text; the options arrive."""
    sampled = ("--temperature", 0.9, "--top-p", 0.95, "--top-k", 50, "--seed", 3)
    report = bench(cli, tiny_bundle, "--prompt-tokens", 20, "--new-tokens", 40, *sampled)
    assert report["outputs_equal"] is True
    assert report["settings"].items() >= {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "seed": 3}.items()
    greedy = bench(cli, tiny_bundle, "--prompt-tokens", 20, "--new-tokens", 40)
    lengths = [[run["acceptance_length"] for run in each["runs"]] for each in (greedy, report)]
    assert lengths[0] != lengths[1]
    refused = cli("bench", tiny_bundle, "--temperature", -1)
    assert (refused.exit_code, "temperature is -1" in refused.err) == (2, True)


def test_run_with_a_tree_gives_the_same_text(tiny_bundle: Path, cli: CommandLine) -> None:
    texts = {
        cli("run", tiny_bundle, "tree", "--max-new-tokens", 20, *tree).out
        for tree in ((), ("--tree", "dynamic"), ("--tree", "dynamic", "--tree-nodes", 20, "--tree-depth", 3))
    }
    assert len(texts) == 1
    assert texts != {""}
    refused = cli("run", tiny_bundle, "tree", "--tree", "3-x")
    assert refused.exit_code == 2
    assert "tree is '3-x', must be" in refused.err


def test_bench_without_a_draft_measures_lookup(plain_bundle: Path, cli: CommandLine) -> None:
    report = bench(cli, plain_bundle, "--prompt-tokens", 20, "--new-tokens", 8)
    assert [run["mode"] for run in report["runs"]] == ["plain", "lookup", "auto"]
    assert report["draft_ms"] is None


@pytest.mark.parametrize(
    "line", ["not json", "[]", '{"prompt": "x"}', '{"category": "x"}'], ids=["text", "list", "no category", "no prompt"]
)
def test_bench_names_a_bad_line(tiny_bundle: Path, cli: CommandLine, tmp_path: Path, line: str) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a", "category": "b"}\n' + line + "\n")
    finished = cli("bench", tiny_bundle, "--prompts", prompts)
    assert finished.exit_code == 2
    assert f"line 2 is {line!r}, must be a JSON object" in finished.err


def test_export_writes_a_bundle_that_runs(checkpoints: dict[str, Path], cli: CommandLine, tmp_path: Path) -> None:
    finished = cli("export", checkpoints["target"], "--out", tmp_path / "bundle", "--no-parity", "--json", "-")
    assert finished.exit_code == 0, finished.err
    numbers = json.loads(finished.out.splitlines()[-1])
    assert [model["name"] for model in numbers["models"]] == ["target"]
    with Engine(tmp_path / "bundle", threads=1) as engine:
        assert engine.generate("x", max_new_tokens=4).token_ids


def test_help_version_and_debug(tmp_path: Path, cli: CommandLine) -> None:
    assert cli("--version").out.startswith("pilotfish ")
    for command in ("export", "info", "run", "chat", "bench", "verify", "plan", "doctor"):
        assert cli(command, "--help").exit_code == 0
    assert "Traceback" not in cli("info", tmp_path).err
    debugged = cli("--debug", "info", tmp_path)
    assert debugged.exit_code == 2
    assert "Traceback" in debugged.err


def test_run_explains_its_rounds(tiny_bundle: Path, cli: CommandLine) -> None:
    plain = cli("run", tiny_bundle, "hi", "--max-new-tokens", 12, "--source", "plain")
    explained = cli("run", tiny_bundle, "hi", "--max-new-tokens", 12, "--source", "draft", "--explain", "--json", "-")
    assert explained.out.startswith(plain.out)
    assert "by the draft model" in explained.err
    rounds = json.loads(explained.out.splitlines()[-1])["rounds"]
    assert 1 + sum(each["num_tokens"] for each in rounds) == 12
    assert all(each["expected_tokens"] >= 1 and each["expected_seconds"] > 0 for each in rounds)


def test_calibrate_measures_and_keeps_the_costs(
    tiny_bundle: Path, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    finished = cli("calibrate", tiny_bundle, "--json", "-")
    assert finished.exit_code == 0, finished.err
    report = json.loads(finished.out.splitlines()[-1])
    assert set(report["ms"]) == {"target", "draft"}
    assert all(cost > 0 for contexts in report["ms"].values() for rows in contexts.values() for cost in rows.values())
    kept = list((tmp_path / "pilotfish").glob("calibration-*.json"))
    assert len(kept) == 1
    before = kept[0].stat().st_mtime_ns
    with Engine(tiny_bundle) as engine:
        assert engine.info.is_calibrated
        assert engine.pass_cost(1, context=32) == pytest.approx(report["ms"]["target"]["32"]["1"] / 1e3)
    assert kept[0].stat().st_mtime_ns == before
    with Engine(tiny_bundle, calibration="off") as engine:
        assert not engine.info.is_calibrated


def test_run_takes_every_sampling_option(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    numbers = tmp_path / "run.json"
    finished = cli(
        *("run", "--raw", tiny_bundle, "options", "--max-new-tokens", "9", "--min-new-tokens", "3", "--seed", "1"),
        *("--temperature", "0.8", "--top-k", "90", "--top-p", "0.99", "--min-p", "0.001", "--typical-p", "0.99"),
        *("--repetition-penalty", "1.1", "--presence-penalty", "0.1", "--frequency-penalty", "0.1"),
        *("--penalty-window", "64", "--no-repeat-ngram-size", "3", "--logit-bias", "257=-inf", "--logit-bias", "65=1"),
        *("--stop", "zzz", "--stop-id", "256", "--ignore-eos", "--logprobs", "2"),
        *("--draft-tokens", "3", "--json", numbers),
    )
    assert finished.exit_code == 0, finished.err
    content = json.loads(numbers.read_text())
    with Engine(tiny_bundle) as engine:
        expected = engine.generate(
            "options",
            max_new_tokens=9,
            min_new_tokens=3,
            seed=1,
            temperature=0.8,
            top_k=90,
            top_p=0.99,
            min_p=0.001,
            typical_p=0.99,
            repetition_penalty=1.1,
            presence_penalty=0.1,
            frequency_penalty=0.1,
            penalty_window=64,
            no_repeat_ngram_size=3,
            logit_bias={257: float("-inf"), 65: 1.0},
            stop="zzz",
            stop_ids=[256],
            ignore_eos=True,
            logprobs=2,
            num_draft_tokens=3,
        )
    assert content["logprobs"] == pytest.approx(expected.logprobs)
    assert content["top_logprobs"] == json.loads(json.dumps(expected.top_logprobs))


def test_a_logit_bias_that_is_none(tiny_bundle: Path, cli: CommandLine) -> None:
    for flags, words in ((["5"], "must be ID=BIAS"), (["5=1", "--logit-bias", "5=2"], "names id 5 twice")):
        for command in (["run", tiny_bundle, "x"], ["chat", tiny_bundle]):
            finished = cli(*command, "--logit-bias", *flags)
            assert finished.exit_code == 2
            assert words in finished.err
