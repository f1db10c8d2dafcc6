from collections.abc import Iterator

import pytest
from selenium import webdriver

from examples.countdown import Countdown
from examples.word_hunt import WordHunt
from ors import Server
from tests.support.browser import Page, chromium
from tests.support.hostile_environment import Stage
from tests.support.live_server import serving


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def page(driver: webdriver.Chrome) -> Iterator[Page]:
    """A tab; nothing that its code or its security policy complains about goes unnoticed."""
    opened = Page(driver)
    opened.complaints()
    yield opened
    assert opened.complaints() == []
    assert opened.run("return window.hacked") is None


@pytest.fixture(scope="session")
def stage() -> Iterator[str]:
    """The URL of a server with a hostile environment and two harmless ones."""
    with serving(Server([Stage, Countdown, WordHunt])) as url:
        yield url
