"""What an environment says about itself: its card, and the secrets in the form that opens a session."""

from pathlib import Path

import pytest

from ors import Server
from tests.server.test_description import Box, Shelf
from tests.support.browser import Page
from tests.support.keyed_environment import Keyed
from tests.support.live_server import serving
from tests.test_identity import identity

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("browser")


def test_the_form_has_a_row_for_each_secret_that_is_required(page: Page) -> None:
    with serving(Server([Keyed])) as url:
        page.open(url, "play/keyed/train/0")
        page.find("details[open] .hint", "Required: judge_key.")
        assert page.find(".secrets input").get_property("value") == "judge_key"
        page.click("button.primary", "Open the session")
        page.find("form", "needs the secret 'judge_key'")


def test_the_card_of_an_environment_shows_what_it_says_about_itself(page: Page) -> None:
    with serving(Server([Shelf, Box])) as url:
        page.open(url, "environments/shelf")
        page.find(".facts dt", "Hash")
        page.find(".facts dd", str(identity("tests.server.test_description:Shelf", ROOT)[1])[:12])
        page.find(".facts dd", "library_card")
        page.find(".facts dt", "height")
        page.open(url, "environments/box")
        page.find(".facts dd", "64.0 MB, with network")
