from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from examples.__main__ import EXAMPLES
from ors import Server
from scripts.site.__main__ import prepare, texts
from tests.support.live_server import serving
from tests.support.raw_http import Raw


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the site, as they are given to its generator."""
    made = tmp_path_factory.mktemp("site") / "pages"
    prepare(made)
    return made


@pytest.fixture(scope="session")
def pages(folder: Path) -> Mapping[str, str]:
    """Their texts, by path."""
    return texts(folder)


@pytest.fixture(scope="session")
def served() -> Iterator[Raw]:
    """A server with all examples."""
    with serving(Server(EXAMPLES)) as url:
        yield Raw(url)
