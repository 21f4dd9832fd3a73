"""``pilotfish chat`` at a terminal: tokens as they come, commands, and a Ctrl-C that ends the answer only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from terminal import DEADLINE_SECONDS, END_OF_INPUT, INTERRUPT, SECONDS_A_ROUND, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def terminal(tiny_bundle: Path) -> Iterator[Terminal]:
    opened = Terminal("chat", tiny_bundle, "--max-new-tokens", 150, "--draft-tokens", 0, "--threads", 1)
    yield opened
    opened.close()


def test_a_conversation_at_a_terminal(terminal: Terminal) -> None:
    terminal.read_until(b"> ")
    terminal.send(b"/stats\n")
    terminal.read_until(b"nothing generated yet")
    terminal.read_until(b"> ")

    terminal.send(b"hi\n")
    time.sleep(6 * SECONDS_A_ROUND)
    terminal.send(INTERRUPT)
    interrupted = time.monotonic()
    terminal.read_until(b"(cancelled)")
    assert time.monotonic() - interrupted < 20 * SECONDS_A_ROUND
    assert terminal.num_reads > 1  # tokens came as they were made
    terminal.read_until(b"> ")
    assert terminal.process.poll() is None

    terminal.send(b"/stats\n")
    terminal.read_until(b"new tokens at")
    terminal.read_until(b"> ")
    terminal.interrupt_until(b"> ")  # with no answer to end
    terminal.send(b"/system be brief\n")
    terminal.read_until(b"system message set")
    terminal.read_until(b"> ")
    terminal.send(b"/reset\n")
    terminal.read_until(b"conversation forgotten")
    terminal.read_until(b"> ")

    terminal.send(b"again\n")
    time.sleep(4 * SECONDS_A_ROUND)
    terminal.send(INTERRUPT)
    terminal.read_until(b"(cancelled)")
    terminal.read_until(b"> ")
    terminal.send(END_OF_INPUT)
    assert terminal.process.wait(DEADLINE_SECONDS) == 0
