"""Pages of reports: well formed, without a request, readable in a real browser; charts hold their data."""

from __future__ import annotations

import importlib.util
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from browsers import chromium

from pilotfish.runtime.report.bench_page import bench_page
from pilotfish.runtime.report.device_page import main as write_device_page
from pilotfish.runtime.report.page import DARK, LIGHT, Page
from pilotfish.runtime.report.png import with_colours
from pilotfish.runtime.report.svg import NUM_COLOURS, Bar, Line, bars, lines

if TYPE_CHECKING:
    from command_line import CommandLine

LOADING = {"src", "href", "action", "srcset", "poster", "formaction"}
NO_CONTENT = {"meta", "link", "input", "br"}
MOST_BYTES = 1_000_000
MOST_SECONDS = 1.0
HOSTILE = '</script><img src="https://example.com/x">&'


class Structure(HTMLParser):
    """Notes open elements, what would be loaded, and the values of charts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.loaded: list[str] = []
        self.values: list[float] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in NO_CONTENT:
            self.open.append(tag)
        given = dict(attrs)
        self.loaded += [value or "" for name, value in attrs if name in LOADING]
        if given.get("class") == "bar":
            self.values.append(float(given["data-value"] or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in NO_CONTENT:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [{"prompt": f"abc abc {index}", "category": ["a", HOSTILE][index % 2]} for index in range(8)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def report(tiny_bundle: Path, cli: CommandLine, prompts: Path) -> dict[str, Any]:
    quick = ("--pass-repeats", 1, "--repeats", 1, "--threads", 1, "--new-tokens", 10, "--context", "20,40")
    finished = cli("bench", tiny_bundle, "--prompts", prompts, *quick, "--json", "-")
    assert finished.exit_code == 0, finished.err
    found = json.loads(finished.out.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_a_page_of_a_benchmark_is_whole_and_asks_for_nothing(report: dict[str, Any]) -> None:
    text = bench_page(report).html()
    found = Structure(text)
    assert found.open == []
    assert found.loaded == ["data:,"]  # an icon that is none
    assert found.seen.isdisjoint({"script", "img", "iframe", "object"})
    assert "default-src 'none'" in text
    assert len(text.encode()) < MOST_BYTES
    for run in report["runs"]:  # each number is in a chart
        assert float(f"{run['ratio']['median']:.6g}") in found.values
    for details in report["category_details"].values():
        assert float(f"{details['auto']['speedup']:.6g}") in found.values


def test_a_browser_shows_it_in_light_and_dark_on_phones_and_on_paper(report: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(bench_page(report).html(), encoding="utf-8")
    asked: list[str] = []
    said: list[str] = []
    papers = set()
    with chromium() as browser:
        for width, scheme in ((1200, "light"), (390, "dark")):
            tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("console", lambda line: said.append(line.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            start = time.perf_counter()
            tab.goto(file.as_uri())
            assert time.perf_counter() - start < 10 * MOST_SECONDS  # machines of tests are busy
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            papers.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            drawn = tab.eval_on_selector_all(
                "rect.bar", "all => all.filter(e => e.getBoundingClientRect().width > 0).length"
            )
            assert drawn == tab.locator("rect.bar").count() > 20
            assert tab.eval_on_selector_all("polyline", "all => all.map(e => e.points.length)") == [5, 5, 5, 2]
        pdf = tab.pdf(format="A4", prefer_css_page_size=True)
    assert said == []
    assert {url for url in asked if not url.startswith("data:")} == {file.as_uri()}
    assert len(papers) == 2
    assert pdf.startswith(b"%PDF")


def test_what_comes_from_outside_is_text() -> None:
    page = Page(HOSTILE, HOSTILE)
    page.section(HOSTILE)
    page.heading(HOSTILE)
    page.paragraph(HOSTILE)
    page.note(HOSTILE)
    page.table([HOSTILE], [[HOSTILE]])
    page.coloured([(HOSTILE, None), (HOSTILE, 1)])
    page.chart("name", HOSTILE, bars(HOSTILE, [(HOSTILE, [Bar(HOSTILE, 1.0, HOSTILE)])]))
    found = Structure(page.html())
    assert found.open == []
    assert found.loaded == ["data:,"]
    assert found.seen.isdisjoint({"script", "img"})


def test_characters_that_xml_has_not_are_replaced() -> None:
    name = "a\x00\x1b[31m\ud800\uffff\x9b"
    drawn = bars(name, [(name, [Bar(name, 1.0, name)])])
    assert "".join(ET.fromstring(drawn).itertext()) == "a\ufffd\ufffd[31m\ufffd\ufffd\ufffd" * 4  # noqa: S314 - our own
    page = Page(name)
    page.coloured([(name, 1)])
    assert page.html().encode()


def test_a_text_that_looks_like_a_colour_is_a_text() -> None:
    drawn = with_colours(bars("t", [('"var(--x)"', [Bar("var(--ink)", 1.0, "")])]))
    assert "".join(ET.fromstring(drawn).itertext()) == 't"var(--x)"var(--ink)'  # noqa: S314 - our own
    assert f'fill="{LIGHT["ink"]}"' in drawn


def test_charts_of_little_data_are_drawn() -> None:
    assert 'data-value="0"' in bars("t", [("", [Bar("a", 0.0, "0")])])
    assert 'data-points="1"' in lines("t", [Line("a", ((4.0, 0.5),))], "x", "y")


def test_both_themes_have_every_colour() -> None:
    names = {f"c{index}" for index in range(NUM_COLOURS)} | {"paper", "ink", "muted", "grid"}
    assert names == LIGHT.keys() == DARK.keys()


def test_pictures_have_colours_of_their_own(report: dict[str, Any], tmp_path: Path) -> None:
    page = bench_page(report)
    assert "var(" in page.charts[0].svg
    assert all('"var(' not in with_colours(chart.svg) for chart in page.charts)
    if importlib.util.find_spec("resvg_py") is None:
        pytest.skip("resvg-py is not installed")
    from pilotfish.runtime.report.png import write_pngs

    for path in write_pngs(page, str(tmp_path)):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_page_of_a_device(report: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = {
        f"{part}_bytes": 5 for part in ("target_weight", "draft_weight", "head_weight", "target_cache", "draft_cache")
    }
    plan |= {f"{part}_bytes": 5 for part in ("head_cache", "activation", "lookup", "runtime", "program", "total")}
    plan |= {"max_context": 1, "num_blocks": 1, "block_size": 1}
    checks = [{"name": "greedy", "source": "draft", "passed": index == 0, "detail": HOSTILE} for index in range(2)]
    files = [tmp_path / name for name in ("doctor.json", "plan.json", "verify.json", "bench.json", "page.html")]
    for file, content in zip(files, ({"cores": 2}, plan, {"checks": checks}, report), strict=False):
        file.write_text(json.dumps(content))
    assert write_device_page([str(file) for file in files]) == 0
    text = files[-1].read_text()
    assert Structure(text).open == []
    assert "NOT lossless: 1 check(s) of 2 failed." in text
    assert len(re.findall(r'id="([^"]+)"', text)) == len(set(re.findall(r'id="([^"]+)"', text)))
    assert write_device_page([str(file) for file in [files[1], files[0], *files[2:]]]) == 2
    assert "has no field 'total_bytes'" in capsys.readouterr().err
    assert write_device_page(["one"]) == 2
    for path, words in (
        (files[3], "would overwrite"),
        (tmp_path, "it is a folder"),
        ("--device", "options come after"),
    ):
        assert write_device_page([*map(str, files[:4]), str(path)]) == 2
        assert words in capsys.readouterr().err
    assert [write_device_page(["--check", str(path)]) for path in (files[4], tmp_path)] == [0, 2]
    files[1].write_text('{"total_bytes": "five"}')
    assert write_device_page(list(map(str, files))) == 2
    assert "is damaged, or of another version: KeyError" in capsys.readouterr().err
    assert files[4].read_text() == text


def test_the_documents_name_every_field_of_the_json(report: dict[str, Any]) -> None:
    root = Path(__file__).resolve().parents[3]
    named = set(re.findall(r"`(\w+)`", (root / "docs" / "report.md").read_text(encoding="utf-8")))
    fields = report.keys() | {"schema"}
    for part in ("roofline", "memory", "load", "conditions", "timeline", "prompts"):
        fields |= report[part].keys()
    run = report["runs"][0]
    fields |= report["timeline"]["rounds"][0].keys() | run.keys() | run["ratio"].keys() | run["shares"].keys()
    assert sorted(fields - named) == []
