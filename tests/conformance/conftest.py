from collections.abc import Iterator

import pytest

from ors import Server
from ors.conformance.probe import Probe, ProbeIndexed
from tests.support.live_server import serving


@pytest.fixture(scope="session")
def several() -> Iterator[str]:
    """Our server with both probes."""
    with serving(Server([Probe, ProbeIndexed])) as url:
        yield url


@pytest.fixture(scope="session")
def single() -> Iterator[str]:
    """Our server with one probe."""
    with serving(Server([Probe])) as url:
        yield url
