"""Ids and events of the protocol, without a server."""

import uuid

import pytest

from ors._protocol import (
    MAX_SLOT,
    CallReader,
    error_event,
    new_session_id,
    session_id_route,
    task_id_event,
    valid_session_id,
)


@pytest.mark.parametrize(("slot", "incarnation"), [(0, 0), (7, 0x12345678), (MAX_SLOT, 0xFFFFFFFF)])
def test_a_session_id_leads_back_to_its_server(slot: int, incarnation: int) -> None:
    sid = new_session_id(slot, incarnation)
    assert session_id_route(sid) == (slot, incarnation)
    assert uuid.UUID(sid).version == 8
    assert uuid.UUID(sid).variant == uuid.RFC_4122


def test_the_id_of_anyone_else_leads_nowhere() -> None:
    assert session_id_route(str(uuid.uuid4())) is None
    assert session_id_route("my-session") is None


@pytest.mark.parametrize(
    ("sid", "valid"),
    [("x", True), ("x" * 256, True), ("x" * 257, False), ("", False), (" ", False), ("\n", False)],
)
def test_a_session_id_is_printable_and_short(sid: str, valid: bool) -> None:
    assert valid_session_id(sid) is valid


def test_a_reader_learns_the_task_id_the_error_and_its_reason() -> None:
    reader = CallReader()
    assert not reader.feed(task_id_event("one"))
    assert reader.feed(error_event("it broke", "environment"))
    assert (reader.task_id, reader.error, reader.reason) == ("one", "it broke", "environment")
