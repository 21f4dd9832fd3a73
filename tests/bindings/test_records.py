"""The Python records and enums are the header's structs and enums."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from pilotfish.bindings import (
    Calibration,
    CudaInfo,
    Decision,
    Device,
    DraftSource,
    EngineInfo,
    EngineOptions,
    Finish,
    Model,
    Origin,
    Reason,
    RequestOptions,
    RequestStats,
    Token,
)
from pilotfish.bindings._ffi import ffi, lib

if TYPE_CHECKING:
    from enum import IntEnum

NOT_IN_PYTHON = {
    "struct_size",
    "num_stop_ids",
    "num_logit_bias",
    "mask_user",
    "num_tree_parents",
    "num_tree_widths",
}


@pytest.mark.parametrize(
    ("record", "struct"),
    [
        (EngineOptions, "pf_engine_options"),
        (EngineInfo, "pf_engine_info"),
        (CudaInfo, "pf_cuda_info"),
        (RequestOptions, "pf_generate_options"),
        (RequestStats, "pf_stats"),
    ],
)
def test_a_record_has_the_structs_members(record: type, struct: str) -> None:
    members = {name for name, _ in ffi.typeof(struct).fields} - NOT_IN_PYTHON
    assert {field.name for field in fields(record)} == members


def test_a_token_has_the_structs_members_in_order() -> None:
    assert list(Token._fields) == [name for name, _ in ffi.typeof("pf_token").fields]


def test_a_decision_has_the_structs_members_in_order() -> None:
    members = [name for name, _ in ffi.typeof("pf_decision").fields]
    members.remove("num_accepted")  # the length of ranks
    assert ["struct_size", *Decision._fields] == members


@pytest.mark.parametrize(
    ("enum", "prefix"),
    [
        (Device, "PF_DEVICE_"),
        (Model, "PF_MODEL_"),
        (Origin, "PF_ORIGIN_"),
        (Finish, "PF_FINISH_"),
        (DraftSource, "PF_DRAFT_"),
        (Calibration, "PF_CALIBRATION_"),
        (Reason, "PF_REASON_"),
    ],
)
def test_an_enum_has_the_headers_values(enum: type[IntEnum], prefix: str) -> None:
    found = {name.removeprefix(prefix): getattr(lib, name) for name in dir(lib) if name.startswith(prefix)}
    assert {member.name: member.value for member in enum} == found
