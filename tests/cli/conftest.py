from collections.abc import Iterator

import pytest

from ors import Server
from tests.support import SUPPORT
from tests.support.cli_environments import Other, Park
from tests.support.live_server import serving

PARK = SUPPORT / "cli_environments.py"


@pytest.fixture
def park() -> str:
    """A TARGET of one environment."""
    return f"{PARK}:Park"


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A server of one environment."""
    with serving(Server([Park])) as address:
        yield address


@pytest.fixture(scope="session")
def two_url() -> Iterator[str]:
    """A server of two environments."""
    with serving(Server([Park, Other])) as address:
        yield address
