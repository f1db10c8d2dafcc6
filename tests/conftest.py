from collections.abc import Iterator

import pytest

from ors import Server
from tests.lab import Lab, Other
from tests.raw import Raw
from tests.serving import serving


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
