from collections.abc import AsyncIterator, Iterator

import pytest

import ors.testing
from ors import Server
from ors.client import AsyncORS, Options
from tests.support.cutting_proxy import http_proxy, listening
from tests.support.environments import Lab, Other
from tests.support.live_server import serving
from tests.support.raw_http import Raw


@pytest.fixture(scope="session")
def url(raw: Raw) -> str:
    """A server with two environments on a real socket."""
    return raw.url


@pytest.fixture(params=["in-process", "http", "link", "proxy"])
async def client(
    request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncORS]:
    """A client of that server, over each transport."""
    if request.param == "in-process":
        async with ors.testing.client(Server([Lab, Other])) as made:
            yield made
        return
    if request.param == "proxy":
        monkeypatch.setenv("http_proxy", request.getfixturevalue("proxy"))
        monkeypatch.setenv("no_proxy", "")
    async with AsyncORS(url, options=Options(multiplex=request.param == "link")) as made:
        yield made


@pytest.fixture(scope="session")
def alone_url() -> Iterator[str]:
    """A server with one environment on a real socket."""
    with serving(Server([Lab])) as made:
        yield made


@pytest.fixture(scope="session")
def proxy() -> Iterator[str]:
    """An HTTP proxy."""
    with listening(http_proxy) as made:
        yield made
