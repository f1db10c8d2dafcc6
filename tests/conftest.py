import os
from collections.abc import Iterator

import pytest

from ors import Server
from tests.lab import Lab, Other
from tests.raw import Raw
from tests.serving import serving


def pytest_xdist_auto_num_workers() -> int:
    """Two processes a core: half of the time, tests wait for servers, clocks and processes."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2 * (os.cpu_count() or 1)


@pytest.fixture(scope="session")
def raw() -> Iterator[Raw]:
    """A server with two environments."""
    with serving(Server([Lab, Other])) as url:
        yield Raw(url)


@pytest.fixture(scope="session")
def alone() -> Iterator[Raw]:
    """A server with one environment."""
    with serving(Server([Lab])) as url:
        yield Raw(url)
