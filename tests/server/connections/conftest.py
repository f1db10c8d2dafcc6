"""Every connection of these tests changes its state as the tables say, or its test fails."""

from collections.abc import Iterator

import pytest

from tests.support.piped_connection import Transition, checked_states


@pytest.fixture(autouse=True)
def transitions() -> Iterator[set[Transition]]:
    """The changes of state in this test."""
    with checked_states() as seen:
        yield seen
