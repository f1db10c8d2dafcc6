"""Secrets that an environment requires, in the form that opens a session."""

import pytest

from ors import Server
from tests.support.browser import Page
from tests.support.keyed_environment import Keyed
from tests.support.live_server import serving

pytestmark = pytest.mark.xdist_group("browser")


def test_the_form_has_a_row_for_each_secret_that_is_required(page: Page) -> None:
    with serving(Server([Keyed])) as url:
        page.open(url, "play/keyed/train/0")
        page.find("details[open] .hint", "Required: judge_key.")
        assert page.find(".secrets input").get_property("value") == "judge_key"
        page.click("button.primary", "Open the session")
        page.find("form", "needs the secret 'judge_key'")
