"""Limits of bodies that are arriving."""

import pytest

from ors.errors import Unavailable
from ors.server.connections.context import (
    BODY_SECONDS,
    LEAST_BYTES_A_SECOND,
    ArrivingBodies,
    seconds_for,
    too_slow,
)


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.connections.context.ARRIVING_BYTES", 100)


def test_bytes_up_to_the_limit_are_taken_and_more_are_refused() -> None:
    arriving = ArrivingBodies()
    arriving.add(60)
    arriving.add(40)
    with pytest.raises(Unavailable, match="over 100 bytes") as error:
        arriving.add(1)
    assert (error.value.status, error.value.retry_after, error.value.reason) == (503, 1, "limit")


def test_bytes_that_were_refused_are_counted_until_they_are_removed() -> None:
    arriving = ArrivingBodies()
    with pytest.raises(Unavailable):
        arriving.add(150)
    with pytest.raises(Unavailable):
        arriving.add(0)
    arriving.bytes -= 150
    assert arriving.bytes == 0
    arriving.add(100)


def test_a_body_has_more_time_the_more_of_it_has_arrived() -> None:
    assert seconds_for(0) == BODY_SECONDS
    assert seconds_for(10 * LEAST_BYTES_A_SECOND) == BODY_SECONDS + 10


def test_a_slow_body_is_408_and_says_what_is_too_slow() -> None:
    error = too_slow()
    assert (error.status, error.reason) == (408, "limit")
    assert f"{BODY_SECONDS:.0f} s" in str(error)
    assert f"{LEAST_BYTES_A_SECOND} bytes" in str(error)
