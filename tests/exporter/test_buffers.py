"""Memory that is used again, and never while somebody holds what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from pilotfish.exporter import buffers
from pilotfish.exporter.buffers import Buffers

if TYPE_CHECKING:
    import pytest


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_that_nobody_holds_is_used_again() -> None:
    some = Buffers()
    first = some.empty((8, 4))
    where = address(first)
    del first
    second = some.empty((4, 8))
    assert (address(second), second.shape, second.dtype) == (where, (4, 8), np.float32)
    del second
    assert address(some.empty((3, 2))) == where  # a part of it


def test_what_is_held_stays_as_it_is() -> None:
    some = Buffers()
    holders = [
        lambda array: array,
        lambda array: array[2:].T,
        torch.from_numpy,
        lambda array: torch.nn.Parameter(torch.from_numpy(array)[1:], requires_grad=False),
        memoryview,
    ]
    held = []
    for number, hold in enumerate(holders):
        array = some.empty((4, 4))
        array[:] = number
        held.append(hold(array))
        del array
    assert [int(np.asarray(each).max()) for each in held] == list(range(len(holders)))


def test_a_larger_array_takes_the_place_of_those_that_are_free() -> None:
    some = Buffers()
    kept = some.empty((2, 2))
    kept[:] = 7
    some.empty((4, 4))
    some.empty((9, 9))
    assert sum(each.size for each in some._kept) == 4 + 81
    assert (kept == 7).all()


def test_the_largest_arrays_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_MOST_ELEMENTS", 10)
    some = Buffers()
    assert some.empty((11,)).shape == (11,)
    assert some._kept == []
    assert some.empty((10,)).base is some._kept[0]
