"""A real browser for pages: the machine's Chromium, through playwright. Where either is missing, a test is skipped."""

from __future__ import annotations

import resource
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of playwright, which ends with the block."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # a browser reserves far more than tests/run.sh allows
    try:
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            yield browser
            browser.close()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
