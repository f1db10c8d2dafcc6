from collections.abc import Iterator

import pytest

from ors import Server
from tests.support.live_server import serving
from tests.support.training_environment import Essay, Gallery, Hunt, Locked


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with the environments "hunt", "essay", "gallery" and "locked"."""
    with serving(Server([Hunt, Essay, Gallery, Locked])) as url:
        yield url


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Checks that every session was ended."""
    yield
    assert Hunt.count["open"] == 0, "sessions are still open"
