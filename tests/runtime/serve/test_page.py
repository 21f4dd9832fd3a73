"""The chat page is one file that asks its own server alone, and reads fields that the server sends."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from browsers import chromium
from serving import ask

from pilotfish.bindings import Origin

if TYPE_CHECKING:
    from pilotfish import Engine

LOADING = {"src", "href", "data", "action", "srcset", "poster", "formaction"}
TEXT = "<b>Why?</b>"
NO_CONTENT = {"meta", "link", "input", "br"}


class Page(HTMLParser):
    """Notes open elements, identifiers, classes, scripts, and what would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.classes: set[str] = set()
        self.loaded: list[str] = []
        self.script = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in NO_CONTENT:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "class":
                self.classes.update((value or "").split())
            if name in LOADING:
                self.loaded.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.script += data


@pytest.fixture
def page(address: str) -> Page:
    page = Page()
    page.feed(ask(address, "/").body.decode())
    page.close()
    return page


def test_it_is_well_formed_and_names_only_what_it_has(page: Page) -> None:
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert set(re.findall(r'byId\("(\w+)"\)', page.script)) == set(page.ids)


def test_it_loads_nothing(address: str, page: Page) -> None:
    assert page.loaded == ["data:,"]  # an icon that is none
    policy = ask(address, "/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'self'" in policy
    assert set(re.findall(r'fetch\("([^"]*)"', page.script)) == {"v1/models", "v1/chat/completions"}
    assert "innerHTML" not in page.script


def test_it_has_a_colour_for_each_origin_of_an_answer(page: Page) -> None:
    origins = {origin.name.lower() for origin in Origin} - {"prompt"}
    assert origins <= page.classes


def test_a_browser_shows_an_answer_and_where_its_tokens_come_from(address: str, direct: Engine) -> None:
    asked: list[str] = []
    errors: list[str] = []
    with chromium() as browser:
        tab = browser.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        tab.goto(address)
        tab.wait_for_selector("#model option", state="attached")
        tab.fill("#text", TEXT)
        tab.press("#text", "Enter")
        tab.wait_for_selector(".numbers, .error")
        spans = tab.eval_on_selector_all(
            ".assistant span", "all => all.map(each => [each.textContent, each.className])"
        )
        said = tab.text_content(".user")
        assert errors == []
        tab.fill("#text", "And after an answer that filled the context?")
        tab.press("#text", "Enter")
        refusal = tab.wait_for_selector(".error").text_content()
    expected = direct.chat([{"role": "user", "content": TEXT}], max_new_tokens=direct.info.max_context)
    assert "".join(text for text, _ in spans) == expected.text
    assert {name for _, name in spans} <= {"plain", "accepted", "corrected", "bonus"}
    assert said == TEXT
    assert "the context holds 256" in refusal
    assert {url.partition("/v1/")[0].rstrip("/") for url in asked if not url.startswith("data:")} == {address}
