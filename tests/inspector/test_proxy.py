"""The page for servers that have none, in the browser."""

import pytest

from ors import Server
from tests.support.browser import Page
from tests.support.commands import running
from tests.support.hostile_environment import Stage
from tests.support.live_server import serving

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("browser")]


def test_an_episode_is_played_on_a_server_that_has_no_inspector(page: Page) -> None:
    with (
        serving(Server([Stage], inspector=False, api_keys=["s3cret"])) as url,
        running("inspect", url, "--api-key", "s3cret") as command,
    ):
        here = page.visit(command.line(r"on (http://\S+)")[1])
        page.open(here)
        page.find("details.tool", "arrange")
        assert url.removeprefix("http://") in page.find("#server").text
        page.play("stage/train/0", here)
        page.click(".tab", "step")
        page.press_call()
        page.find(".step.ok", "reward 0.5")
        page.go("live")
        page.find(".note", "does not show its sessions")
        page.go("tasks/stage/train")
        page.count(".tasks tbody tr", 25)
        page.type("Search all tasks", "task-27")
        page.find("p.where", "1 task found, all 30 searched")


def test_a_remote_server_that_tells_is_watched(page: Page, stage: str) -> None:
    with running("inspect", stage) as command:
        here = page.visit(command.line(r"on (http://\S+)")[1])
        page.play("stage/train/0", here)
        sid = page.find(".summary .sid").text
        page.go("live")
        page.click(f'tr[data-sid="{sid}"] a')
        page.find(".note", "No calls yet")
        page.go("play")
        page.click(".tab", "step")
        page.press_call()
        page.find(".step.ok", "reward 0.5")
        page.go(f"session/{sid}")
        page.find(".step.ok", "reward 0.5")


def test_only_the_address_that_was_printed_opens_the_server(page: Page, stage: str) -> None:
    with running("inspect", stage) as command:
        address = command.line(r"on (http://\S+)")[1]
        here = address.partition("/-/")[0]
        page.open(here)
        page.find(".problem", "open the address that `ors inspect` printed")
        assert page.visit(address) == here
        page.find("details.tool", "arrange")
        assert page.run("return location.href") == f"{here}/-/"  # what is shown and shared tells no token
        page.run("location.reload()")
        page.find("details.tool", "arrange")
        page.open(here, "live")  # a stream
        page.find(".tile", "Sessions")
        page.go("wire")
        token = address.partition("token=")[2]
        assert token not in page.find("body").text
