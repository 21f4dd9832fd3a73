"""What a pass needs at least, by the rates of a machine."""

from __future__ import annotations

import dataclasses

import pytest

from pilotfish.runtime.bench_passes import Roofline

RATES = Roofline(
    bytes_per_pass=4_000_000,
    operations_per_row=1_000_000,
    bytes_per_second=1e9,
    operations_per_second=5e8,
    float32_operations_per_second=1e9,
)


def test_the_slower_of_reading_and_computing_is_the_floor() -> None:
    assert [RATES.floor_ms(rows) for rows in (1, 2, 8)] == pytest.approx([4, 4, 16])


def test_a_manifest_without_a_count_of_parameters_tells_no_operations() -> None:
    untold = dataclasses.replace(RATES, operations_per_row=0, operations_per_second=0.0)
    assert [untold.floor_ms(rows) for rows in (1, 8)] == pytest.approx([4, 4])
