"""One page about a device and a bundle: what doctor, plan, verify and bench found. `samples/device_report.sh` makes it.

python -m pilotfish.runtime.report.device_page doctor.json plan.json verify.json bench.json PAGE.html
python -m pilotfish.runtime.report.device_page --check PAGE.html    # whether it can be written, before the work
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pilotfish.bindings import InvalidArgumentError, PilotfishError
from pilotfish.runtime.files import check_outputs, parse_json, read_text, replace_text, why_not_writable
from pilotfish.runtime.memory import MEMORY_PARTS

from .answer_sections import add_memory
from .bench_page import add_bench
from .page import Page
from .schema import read_bench_report

_ARGUMENTS = 5


def device_page(doctor: dict[str, Any], plan: dict[str, Any], verify: dict[str, Any], bench: dict[str, Any]) -> Page:
    """The page of four reports."""
    page = Page(
        f"pilotfish on {bench['machine'].get('gpu', bench['machine']['cpu'])}",
        f"{bench['bundle']['path']}, pilotfish {bench['machine']['pilotfish']}",
    )
    failed = [check for check in verify["checks"] if not check["passed"]]
    if failed:
        page.note(f"NOT lossless: {len(failed)} check(s) of {len(verify['checks'])} failed.")
    for line in bench["notes"]:
        page.note(line)
    add_bench(page, bench)
    page.section("Lossless?")
    page.paragraph(
        f"{len(verify['checks']) - len(failed)} of {len(verify['checks'])} checks of pilotfish verify passed."
    )
    page.table(
        ("check", "source", "verdict", "found"),
        [
            (check["name"], check["source"], "pass" if check["passed"] else "FAIL", check["detail"])
            for check in verify["checks"]
        ],
        is_text=True,
    )
    page.section("Memory plan of the whole context")
    parts = {name: plan[key] for name, key in MEMORY_PARTS.items() if plan[key]}
    page.paragraph(f"Context: {plan['max_context']} tokens in {plan['num_blocks']} blocks of {plan['block_size']}.")
    add_memory(page, parts, plan["total_bytes"], None, name="plan")
    page.section("What is installed")
    page.table(("what", "found"), [(str(name), str(value)) for name, value in doctor.items()], is_text=True)
    return page


def main(arguments: list[str]) -> int:
    """Read four files and write the page; 2 with a message if one is not what it should be."""
    is_check = len(arguments) == len(("--check", "PAGE")) and arguments[0] == "--check"
    if len(arguments) != _ARGUMENTS and not is_check:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    *files, target = arguments
    try:
        if target.startswith("-") or (reason := why_not_writable(target)):
            reason = "options come after the page" if target.startswith("-") else reason
            raise InvalidArgumentError(f"the page {target!r} cannot be written: {reason}")
        if not is_check:
            check_outputs({"the page": target}, files)
            replace_text(Path(target), _page_of(files))
    except (PilotfishError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _page_of(files: list[str]) -> str:
    doctor, plan, verify = (_read(path, key) for path, key in zip(files, ("", "total_bytes", "checks"), strict=False))
    bench = read_bench_report(files[3])
    try:
        return device_page(doctor, plan, verify, bench).html()
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise InvalidArgumentError(
            f"one of {', '.join(files)} is damaged, or of another version: {type(error).__name__}: {error}"
        ) from error


def _read(path: str, key: str) -> dict[str, Any]:
    try:
        content = parse_json(read_text("the report", path))
    except ValueError as error:
        raise InvalidArgumentError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict) or (key and key not in content):
        raise InvalidArgumentError(
            f"{path} has no field {key!r}: give the files of doctor, plan, verify and bench, in order"
        )
    return content


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
