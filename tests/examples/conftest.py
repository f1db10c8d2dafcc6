from collections.abc import Callable, Iterator

import pytest

from examples.__main__ import EXAMPLES
from ors import Server
from tests.examples.episode import Episode
from tests.support.live_server import serving
from tests.support.raw_http import Raw

Play = Callable[[str, str, int], Episode]


@pytest.fixture(scope="session")
def examples() -> Iterator[Raw]:
    """A server with all examples."""
    with serving(Server(EXAMPLES)) as url:
        yield Raw(url)


@pytest.fixture
def play(examples: Raw) -> Play:
    """Starts an episode: `play("maze", "train", 0)`."""
    return lambda env, split, index: Episode(examples, env, split, index)
