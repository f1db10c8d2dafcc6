"""Servers that go away, and servers that ask for a key."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from ors import Server
from tests.support.browser import Page
from tests.support.hostile_environment import Stage
from tests.support.live_server import serving

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("browser")]


@contextmanager
def listening(port: int) -> Iterator[int]:
    """A server on that port, which another one may have had before."""
    listener = socket.create_server(("127.0.0.1", port))
    port = listener.getsockname()[1]
    runner = Server([Stage]).runner()
    thread = Thread(target=runner.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield port
    finally:
        runner.should_exit = True
        thread.join(30)
        listener.close()


def test_a_server_that_dies_is_reported_and_the_page_recovers(page: Page) -> None:
    with listening(0) as port:
        page.open(f"http://127.0.0.1:{port}", "live")
        page.find(".tile")
    page.find("#notice", "The server cannot be reached")
    page.go("environments")
    page.find(".problem")
    with listening(port):
        page.find("#notice", "The server is back")
        page.find(".lead", "A stage for")
        page.gone("#notice .away")


def test_an_episode_on_a_server_that_dies_is_told_to_be_lost(page: Page) -> None:
    with listening(0) as port:
        page.play("stage/train/0", f"http://127.0.0.1:{port}")
    page.find("#notice", "The server cannot be reached")
    with listening(port):
        page.find("#notice", "The server is back")
        page.click(".tab", "step")
        page.press_call()
        page.find(".summary .state", "lost")
        page.driver.refresh()
        page.find(".over", "The session is lost")
        page.find('.step.failed[data-step="1"]')
        page.click("button", "New episode")
        page.click("button", "Open the session")
        page.find(".tools .tab")


def test_a_key_is_asked_for_once_and_kept_for_the_tab(page: Page) -> None:
    with serving(Server([Stage], api_keys=["team=s3cret-key"])) as url:
        page.open(url)
        page.type_key("wrong")
        page.find("h1", "needs an API key")
        page.type_key("s3cret-key")
        page.find(".lead", "A stage for")
        page.driver.refresh()
        page.find(".lead", "A stage for")
        page.play("stage/train/0", url)
        page.go("wire")
        page.click(".exchanges a", "POST /create")
        assert "X-API-Key: •••" in page.find(".wire-detail").text
        page.go("live")
        page.find(".sessions tbody tr", "stage")
        page.run("sessionStorage.clear()")
