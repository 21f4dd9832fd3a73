"""Every status of the header has its own exception class."""

from __future__ import annotations

import re

import pytest

from pilotfish.bindings import InternalError, PilotfishError, errors, include_dir
from pilotfish.bindings._ffi import lib
from pilotfish.bindings.status import EXCEPTIONS, check

STATUSES = {
    name: int(value)
    for name, value in re.findall(r"^  (PF_\w+) = (-\d+)", (include_dir() / "pilotfish.h").read_text(), re.MULTILINE)
}


def test_the_header_was_read() -> None:
    assert STATUSES["PF_INTERNAL"] == -99
    assert len(STATUSES) >= 13


@pytest.mark.parametrize("name", STATUSES)
def test_each_status_raises_its_own_class(name: str) -> None:
    with pytest.raises(EXCEPTIONS[STATUSES[name]]):
        check(STATUSES[name])
    assert list(EXCEPTIONS.values()).count(EXCEPTIONS[STATUSES[name]]) == 1


def test_success_raises_nothing() -> None:
    check(lib.PF_OK)


def test_a_status_this_package_does_not_know_is_a_bug() -> None:
    with pytest.raises(InternalError):
        check(-12345)


def test_each_class_is_a_pilotfish_error_and_a_builtin() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and value is not PilotfishError]
    assert set(classes) == set(EXCEPTIONS.values())
    for error in classes:
        assert issubclass(error, PilotfishError)
        assert error.__mro__[2] is not Exception
