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
    LoadStage,
    Model,
    Origin,
    Reason,
    RequestOptions,
    RequestStats,
    Token,
    VerifyHashes,
)
from pilotfish.bindings._ffi import ffi, lib
from pilotfish.bindings.request_options import RequestStruct

if TYPE_CHECKING:
    from enum import IntEnum


@pytest.mark.parametrize(
    ("record", "struct"),
    [
        (EngineOptions, "pf_engine_options"),
        (EngineInfo, "pf_engine_info"),
        (CudaInfo, "pf_cuda_info"),
        (RequestStats, "pf_stats"),
    ],
)
def test_a_record_has_the_structs_members(record: type, struct: str) -> None:
    members = {name for name, _ in ffi.typeof(struct).fields} - {"struct_size", "progress_user"}
    assert {field.name for field in fields(record)} == members


def test_a_request_has_the_structs_members() -> None:
    """Its numbers are whatever the struct has; everything else is an array with its length, or the mask."""
    others = {field.name for field in fields(RequestOptions)} - {"numbers", "mask"}
    pointers = {name for name, field in ffi.typeof("pf_generate_options").fields if field.type.kind != "primitive"}
    assert pointers == others | {"mask", "mask_user"}


def test_a_request_takes_numbers_of_the_struct_alone() -> None:
    options = RequestOptions(numbers={"top_k": 7, "temperature": 0.5, "echo": True})
    struct = RequestStruct(options).pointer
    assert (struct.top_k, struct.temperature, struct.echo, struct.top_p) == (7, 0.5, 1, 1.0)
    assert (options.top_k, options.top_p) == (7, 1.0)
    with pytest.raises(AttributeError, match="no number 'top_q'"):
        assert options.top_q
    with pytest.raises(KeyError, match="top_q"):
        RequestStruct(RequestOptions(numbers={"top_q": 7}))


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
        (LoadStage, "PF_LOAD_"),
        (VerifyHashes, "PF_VERIFY_"),
    ],
)
def test_an_enum_has_the_headers_values(enum: type[IntEnum], prefix: str) -> None:
    found = {name.removeprefix(prefix): getattr(lib, name) for name in dir(lib) if name.startswith(prefix)}
    assert {member.name: member.value for member in enum} == found
