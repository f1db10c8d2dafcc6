"""Named rewards and declared ranges in the browser: Play, Live, environments and runs."""

import os
from pathlib import Path

import pytest

from ors import Server
from ors.inspector import RunsApi
from tests.support.browser import Page
from tests.support.episode_records import episode
from tests.support.essay_environment import Graded
from tests.support.live_server import serving
from tests.support.recorded_runs import write_run

pytestmark = pytest.mark.xdist_group("browser")


def axis_goes_to_3(page: Page, labels: str) -> None:
    """Three is the end of the declared range."""
    page.until(lambda: "3" in [label.text for label in page.all(labels)], "the axis shows the declared range")


def test_each_step_the_episode_and_the_live_tables_show_named_rewards(page: Page) -> None:
    with serving(Server([Graded], inspector=True)) as url:
        page.open(url, "environments")
        card = page.find("section[aria-label=graded]").text
        assert "REWARDS FROM 0 TO 3" in card
        assert "Whether the answer is right." in card
        page.play("graded/train/0", url)
        page.click(".tab", "draft")
        page.type("tidy", "0.25")
        page.press_call()
        step = page.find('.step.ok[data-step="1"]')
        assert "tidy 0.25" in step.text
        assert "words 3" in step.text
        assert "reward_components" not in step.text
        axis_goes_to_3(page, ".rewards svg text")
        page.go("live")
        assert "tidy 0.25" in page.find("table.sessions:not(.ended) .parts").text
        page.click("table.sessions:not(.ended) a")
        axis_goes_to_3(page, ".summary svg text")
        page.go("play")
        page.click(".tab", "submit")
        page.type("correct", "1")
        page.type("tidy", "0.5")
        page.press_call()
        assert "correct 1 · tidy 0.5" in page.find('.step.ok[data-step="2"]').text
        assert page.find(".summary .parts").text == "tidy 0.75 · correct 1"
        page.go("live")
        assert page.find("table.ended .parts").text == "tidy 0.75 · correct 1"


def test_runs_show_named_rewards_with_their_errors_and_compare_them(page: Page, tmp_path: Path) -> None:
    for name, right in (("first", 0.0), ("second", 1.0)):
        parts = {"correct": right, "format": 0.5}
        write_run(tmp_path / name, [episode(n, right + 0.5, components=parts) for n in range(3)])
        os.utime(tmp_path / name / "episodes.jsonl", (0, 0))
    server = Server([Graded], inspector=True)
    server.show_runs(RunsApi(tmp_path))
    with serving(server) as url:
        page.open(url, "runs/first")
        assert page.find("dl[aria-label='Named rewards']").text.split("\n") == [
            "correct",
            "0",
            "format",
            "0.5",
        ]
        page.find(".grid .reward span[title='correct 0 · format 0.5']")
        page.click(".grid tr[data-row] a")
        assert page.find(".facts .parts").text == "correct 0 · format 0.5"
        page.open(url, "compare/first/second")
        page.find("h3", "NAMED REWARDS, B − A")
        assert page.find(".view.compare dl.facts").text.split("\n")[:2] == ["correct", "+1"]
