"""Ids and events of the protocol, without a server."""

import re
import uuid
from itertools import islice

import pytest

from ors._protocol import (
    CALL,
    ENDPOINTS,
    FORK,
    HEALTH,
    MAX_SLOT,
    CallReader,
    error_event,
    new_session_id,
    session_id_route,
    task_id_event,
    task_ids,
    valid_session_id,
)


def test_only_the_path_of_an_endpoint_that_environments_have_begins_with_one() -> None:
    assert (CALL.path("lab"), CALL.path()) == ("/lab/call", "/call")
    assert (HEALTH.path("lab"), HEALTH.path()) == ("/health", "/health")


def test_requests_about_a_session_name_it() -> None:
    about = {endpoint.name for endpoint in (*ENDPOINTS, FORK) if endpoint.needs_session}
    of_environments = {"task_tools", "prompt", "call"}
    assert about == {"create", "delete", "delete_session", "ping", "-/fork"} | of_environments


@pytest.mark.parametrize(("slot", "incarnation"), [(0, 0), (7, 0x12345678), (MAX_SLOT, 0xFFFFFFFF)])
def test_a_session_id_leads_back_to_its_server(slot: int, incarnation: int) -> None:
    sid = new_session_id(slot, incarnation)
    assert session_id_route(sid) == (slot, incarnation)
    assert uuid.UUID(sid).version == 8
    assert uuid.UUID(sid).variant == uuid.RFC_4122


def test_an_id_that_is_made_without_a_server_is_of_slot_and_incarnation_0() -> None:
    assert session_id_route(new_session_id()) == (0, 0)


def test_every_bit_of_a_session_id_is_random_but_those_that_lead_and_those_of_its_version() -> None:
    made = [uuid.UUID(new_session_id(7, 0x12345678)).int for _ in range(500)]
    ever = always = made[0]
    for one in made:
        ever, always = ever | one, always & one
    assert (ever ^ always).bit_count() == 74


def test_task_ids_have_32_hexadecimal_digits_and_no_two_are_the_same() -> None:
    made = list(islice(task_ids(), 9000))
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)
    assert len(set(made)) == len(made)


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
