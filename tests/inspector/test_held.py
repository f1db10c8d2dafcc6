"""The inspector says which methods blocked the event loop."""

import pytest

from ors import Server
from ors.client import ORS
from tests.server.observe.test_loop_watch import Holding
from tests.support.browser import Page
from tests.support.live_server import serving

pytestmark = pytest.mark.xdist_group("browser")


def test_a_method_that_held_the_event_loop_is_named_beside_the_live_sessions(page: Page) -> None:
    with (
        serving(Server([Holding])) as url,
        ORS(url) as client,
        client.environment("holding").session(split="train", index=0) as session,
    ):
        session.call_tool("sleep", {})
        page.open(url, "live")
        page.find(".note.held", "Holding.sleep (")
