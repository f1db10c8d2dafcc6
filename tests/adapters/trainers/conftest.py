import typing
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import typing_extensions

from ors import Server
from tests.support.live_server import serving
from tests.support.training_environment import Essay, Gallery, Hunt, Locked, Parts

if find_spec("skyrl"):  # which is for Python 3.12: pydantic wants this one of it before
    typing.TypedDict = typing_extensions.TypedDict


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with the environments "hunt", "essay", "gallery", "locked" and "parts"."""
    with serving(Server([Hunt, Essay, Gallery, Locked, Parts])) as url:
        yield url


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Checks that every session was ended."""
    yield
    assert Hunt.count["open"] == 0, "sessions are still open"
