"""Recorded runs, seen in the browser."""

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from ors import Server
from ors.client import ToolInvocation
from ors.inspector import RunsApi
from ors.rollouts import (
    AgentMessage,
    Failed,
    Refused,
    SystemMessage,
    TaskRef,
    ToolMessage,
    Truncated,
    UserMessage,
)
from ors.types import Blocks, ImageBlock, TextBlock
from tests.support.browser import Page
from tests.support.commands import running
from tests.support.episode_records import LOST, episode
from tests.support.hostile_environment import HOSTILE, PIXEL, Stage
from tests.support.live_server import serving
from tests.support.recorded_runs import called, many, said, talk, write_run

pytestmark = pytest.mark.xdist_group("browser")

SIX = [
    episode(0, 0.25, steps=2),
    episode(1, 1.0, steps=1),
    episode(2, 0.5, steps=5),
    episode(3, None),
    episode(4, 0.5, outcome=Truncated("turns"), steps=9),
    episode(5, None, outcome=Failed("environment", "call", "ToolFailed", "it raised"), steps=3),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that share five tasks."""
    found = tmp_path_factory.mktemp("runs")
    write_run(found / "first", SIX)
    better = [
        episode(0, 0.75),
        episode(1, 0.5),
        episode(2, 0.5, sample=0),
        episode(2, 1.0, sample=1),
        episode(9),
    ]
    write_run(found / "later" / "second", better)
    for file in found.rglob("*.jsonl"):  # or the page would say that they grow, and later that they do not
        os.utime(file, (0, 0))
    return found


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with running("view", str(folder)) as command:
        yield command.line(r"on (http://\S+)")[1]


@pytest.fixture
def here(page: Page, address: str) -> str:
    """The URL of `ors view`, which this tab may use."""
    return page.visit(address)


def texts(page: Page, css: str) -> list[str]:
    """The texts of all elements, read at once: the page may draw them again at any time."""
    found = page.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", css)
    assert isinstance(found, list)
    return found


def listed(page: Page, *wanted: str) -> None:
    page.until(lambda: texts(page, ".grid tr[data-row] a") == list(wanted), f"the rows are not {wanted}")


def test_the_runs_of_a_folder_are_listed_with_their_figures(page: Page, here: str) -> None:
    page.open(here, "")
    row = page.find('tr[data-run="first"]')
    assert "0.45" in row.text  # of 0.25, 1, 0.5, 0.5, and 0 for the unscored one; the failed one is left out
    assert "1 without a reward" in row.text
    assert re.search(r"\b6\b", row.text)
    strip = row.find_element("css selector", ".strip")
    assert strip.get_attribute("aria-label") == "3 scored, 1 unscored, 1 truncated, 1 failed"
    page.find('tr[data-run="later/second"]')
    assert texts(page, "#nav a") == ["Runs"]


def test_runs_are_listed_newest_first_and_sorted_by_a_click(page: Page, here: str, folder: Path) -> None:
    def shown(*wanted: str) -> None:
        page.until(lambda: texts(page, ".run-name") == list(wanted), f"the runs are not {wanted}")

    os.utime(folder / "first" / "episodes.jsonl", (5, 5))
    page.open(here, "")
    page.find("th[aria-sort=descending]", "Changed")
    newest = texts(page, ".run-name")
    assert newest[0] == "first"
    page.click("th .order", "Changed")
    shown(*reversed(newest))
    page.click("th .order", "Run")
    shown(*sorted(newest))
    page.find(".strip-legend", "the greener, the higher")


def test_the_colour_of_an_outcome_says_what_was_earned(page: Page, here: str) -> None:
    page.open(here, "runs/first?sort=-reward")
    page.find('tr[data-row="0"] .badge.plus', "scored")


def test_a_message_without_words_takes_no_box(page: Page, tmp_path: Path) -> None:
    call, result = called(said("three"))
    assert isinstance(call, AgentMessage)
    write_run(tmp_path / "run", [talk([replace(call, text=""), result])])
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs/run")
        page.click(".grid a", "test/0")
        page.find('.step[data-step="1"]', "three")
        assert page.all(".turn.agent") == []


def test_episodes_are_sorted_by_each_column(page: Page, here: str) -> None:
    page.open(here, "runs/first")
    listed(page, *(f"test/{n}" for n in range(6)))
    page.click("th .order", "Reward")
    listed(page, "test/1", "test/2", "test/4", "test/0", "test/3", "test/5")
    assert page.find("th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.click("th .order", "Reward")
    listed(page, "test/3", "test/0", "test/2", "test/4", "test/1", "test/5")
    page.click("th .order", "Calls")
    listed(page, "test/4", "test/2", "test/5", "test/0", "test/1", "test/3")
    page.click("th .order", "Outcome")
    listed(page, "test/5", "test/0", "test/1", "test/2", "test/4", "test/3")


def test_episodes_are_filtered_and_a_reload_comes_back(page: Page, here: str) -> None:
    page.open(here, "runs/first")
    listed(page, *(f"test/{n}" for n in range(6)))
    page.type("Outcome", "failed")
    listed(page, "test/5")
    page.click("button", "Clear")
    listed(page, *(f"test/{n}" for n in range(6)))
    page.find('[aria-label="Reward from"]').send_keys("0.5")
    listed(page, "test/1", "test/2", "test/4")
    page.find('[aria-label="Calls to"]').send_keys("5")
    listed(page, "test/1", "test/2")
    page.click("th .order", "Reward")
    page.type("Search", "TEST/2")
    listed(page, "test/2")
    page.run("location.reload()")
    listed(page, "test/2")
    assert page.field("Search").get_attribute("value") == "TEST/2"
    assert page.find('[aria-label="Reward from"]').get_attribute("value") == "0.5"
    assert page.find("th[aria-sort]").text.startswith("Reward")
    page.find(".where", "1 of 6 episodes")


def test_a_bar_of_the_histogram_selects_its_episodes(page: Page, here: str) -> None:
    page.open(here, "runs/first")
    page.count(".histogram button", 4)
    assert [bar.get_attribute("aria-label") for bar in page.all(".histogram button")] == [
        "Reward 0: 1",
        "Reward 0.25: 1",
        "Reward 0.5: 2",
        "Reward 1: 1",
    ]
    page.find(".histogram figcaption", "1 failed episode left out")
    page.click(".histogram button:nth-child(3)")
    listed(page, "test/2", "test/4")
    page.until(
        lambda: page.run("return document.activeElement.ariaPressed") == "true", "the bar has lost the focus"
    )
    page.press(Keys.ENTER)
    listed(page, *(f"test/{n}" for n in range(6)))


def test_an_episode_is_shown_as_a_conversation(page: Page, here: str) -> None:
    page.open(here, "runs/first?sort=-reward")
    page.click(".grid a", "test/2")
    page.find("h1", "test/2")
    page.find(".turn.user", "What is 2 + 2?")
    assert len(page.all(".turn.agent")) == 5
    step = page.find('.step[data-step="5"]', "reward 0.5")
    assert "answer" in step.text
    assert "at 4.0 s" in step.text
    page.find(".ending", "Reward 0.5.")
    page.find(".side .total", "0.5")
    assert len(page.all(".timeline .called")) == 5
    page.find(".where", "2 of 6 episodes")
    page.press(Keys.ARROW_RIGHT)
    page.find("h1", "test/4")
    page.find(".ending.truncated", "limit of turns")
    page.click("a", "Next")
    page.find("h1", "test/0")
    page.run("location.reload()")
    page.find("h1", "test/0")
    page.click("h1 a", "first")
    page.find("th[aria-sort]", "Reward")


def test_a_failed_episode_says_who_failed(page: Page, here: str) -> None:
    page.open(here, "runs/first?outcome=failed")
    page.click(".grid a", "test/5")
    page.find(".ending.failed", "The environment failed at a call.")
    page.find(".ending.failed pre", "ToolFailed: it raised")
    page.find(".side .total", "–")


def test_two_runs_are_compared_task_by_task(page: Page, here: str) -> None:
    page.open(here, "runs")
    page.click('tr[data-run="first"] input')
    page.click('tr[data-run="later/second"] input')
    page.click("a", "Compare")
    listed(page, "test/0", "test/2", "test/1", "test/3", "test/4", "test/5", "test/9")
    assert texts(page, '.grid tr[data-row="1"] td')[1:] == ["0.5", "0.75 of 2", "+0.25"]
    page.find(".tile", "+0.083")
    page.find(".tile", "2 better")
    assert len(page.all(".histogram .drawn.b")) == 5
    page.type("B against A", "worse")
    listed(page, "test/1")
    page.run("location.reload()")
    listed(page, "test/1")
    page.type("B against A", "all")
    page.click(".grid a", "test/2")
    page.find('[aria-label="Run A"] .turn.user', "What is 2 + 2?")
    page.find('[aria-label="Run B"] .turn.user', "What is 2 + 2?")
    page.find('[aria-label="Run B"] .total', "0.5")
    page.find('[aria-label="Run B"] select').send_keys("#1")
    page.find('[aria-label="Run B"] .total', "1")
    page.click("h1 a", "Compare")
    page.click(".grid a", "test/9")
    page.find('[aria-label="Run A"]', "This run has no episode of the task.")


def around(page: Page, row: int) -> bool:
    """Whether the rows near this one are there, and not many others."""
    script = (
        "return [...document.querySelectorAll('tr[data-row]:has(a)')].map((row) => Number(row.dataset.row))"
    )
    numbers = page.run(script)
    assert isinstance(numbers, list)
    assert len(numbers) < 80
    return len(numbers) > 10 and all(abs(number - row) < 150 for number in numbers)


@pytest.mark.long
def test_ten_thousand_episodes_scroll_with_few_rows(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "big", many(10_000))
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs/big?sort=task")
        page.find(".where", "10,000 episodes")
        page.find(".grid a", "test/0")
        for place in (0.25, 0.5, 0.75, 1.0):
            page.run("window.scrollTo(0, document.documentElement.scrollHeight * arguments[0])", place)
            page.until(lambda: around(page, int(place * 10_000)), "the rows of this place are missing")  # noqa: B023
        page.find(".grid a", "test/9999")
        assert page.run("return document.querySelectorAll('*').length < 1500")
        assert page.run("return document.querySelector('.grid').ariaRowCount") == "10001"
        page.run("window.scrollTo(0, document.documentElement.scrollHeight / 2)")

        def row() -> int:
            told = re.search(r"row=(\d+)", str(page.run("return location.hash")))
            return int(told[1]) if told and 4000 < int(told[1]) < 6000 else 0

        half = page.until(row, "the address does not say the row")
        page.run("location.reload()")
        page.find(".grid a", f"test/{half + 2}")
        page.click("th .order", "Reward")
        page.until(
            lambda: page.all('.grid tr[data-row="0"] a'), "a new order does not begin at its first row"
        )


def test_the_keyboard_moves_through_the_rows_and_opens_one(page: Page, here: str) -> None:
    page.open(here, "runs/first")
    listed(page, *(f"test/{n}" for n in range(6)))
    page.run("document.querySelector('.grid tr[data-row] a').focus()")
    page.press(Keys.ARROW_DOWN)
    page.press(Keys.ARROW_DOWN)
    page.press(Keys.ARROW_UP)
    page.press(Keys.ENTER)
    page.find("h1", "test/1")


def test_a_phone_shows_every_view_without_scrolling_sideways(page: Page, here: str) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    one, other = episode(2).id, episode(2, sample=1).id
    pair = "compare/first/later%2Fsecond"
    try:
        for view, seen in [
            ("runs", "a.run-name"),
            ("runs/first", ".grid a"),
            (f"runs/first/{one}", ".ending"),
            (pair, ".grid a"),
            (f"{pair}/{one}/{other}", ".ending"),
        ]:
            page.open(here, view)
            page.find(seen)
            assert page.run("return document.documentElement.scrollWidth <= innerWidth"), view
            if seen == ".grid a":
                page.find('.grid tr[data-row="0"] a', "test/0")
                assert page.find(".grid td.task").size["width"] > 80
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_run_shows_its_findings_with_links_to_their_episodes(page: Page, tmp_path: Path) -> None:
    write_run(
        tmp_path / "run",
        [episode(n, None if n < 3 else 1.0, outcome=LOST if n < 3 else None) for n in range(20)],
    )
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs/run")
        page.find(".findings summary", "2 findings").click()
        page.find(".findings li", "3 of 20 episodes (15.0%) failed: infrastructure")
        page.find(".findings li", "Check the server and the network")
        page.find(".findings a", episode(0).id[:8]).click()
        page.find(".ending", "failed")


def test_a_run_that_grows_is_followed(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "growing", [episode(0)])
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs")
        page.find('tr[data-run="growing"]', "growing")
        page.go("runs/growing")
        listed(page, "test/0")
        page.run("document.querySelector('.grid tr[data-row] a').focus()")
        write_run(tmp_path / "growing", [episode(1, 0.5)])
        listed(page, "test/0", "test/1")
        assert page.run("return document.activeElement.textContent") == "test/0"
        write_run(tmp_path / "another", [episode(0)])
        page.go("runs")
        page.find('tr[data-run="another"]')


def test_hostile_records_are_shown_as_text(page: Page, tmp_path: Path) -> None:
    huge = "x" * (2**20) + "end"
    messages = [
        SystemMessage(HOSTILE),
        UserMessage([TextBlock(text=HOSTILE), ImageBlock(data=PIXEL, mimeType="image/png")]),
        AgentMessage(text=f"{HOSTILE} javascript:alert(1)", reasoning=HOSTILE),
        *called([*said(HOSTILE), TextBlock(text=huge)], finished=True, metadata={"note": HOSTILE}),
        ToolMessage(None, HOSTILE, said(HOSTILE), ok=False, reason=HOSTILE),
    ]
    run = f"javascript:alert(1)<b>{'n' * 60}"
    write_run(tmp_path / run, [talk(messages, agent=HOSTILE)])
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs")
        page.click("a.run-name", run)
        page.find(".tile", HOSTILE)
        page.click(".grid a", "test/0")
        for kind in (".turn.system", ".turn.user", ".turn.agent", ".step.ok", ".step.refused"):
            assert HOSTILE in page.find(kind, HOSTILE).text
        assert page.all("main script, main iframe, main [onerror]") == []
        assert not page.run("return [...document.links].some((link) => link.protocol === 'javascript:')")
        page.find(".turn.user img")
        page.click("button", "Show a long text")
        page.click("button", "Show all 1,048,579 characters")
        page.until(
            lambda: page.run("return document.body.textContent.includes('xend')"), "the end is missing"
        )


def test_messages_of_strange_shapes_are_refused_in_words_and_do_not_break_the_page(
    page: Page, tmp_path: Path
) -> None:
    write_run(tmp_path / "strange", [episode(0)])
    file = tmp_path / "strange" / "episodes.jsonl"
    line = json.loads(file.read_text())
    line["messages"] = [
        {"role": "tool", "call": 5, "name": None, "blocks": "no list", "started": "soon", "seconds": []},
        {"role": "assistant", "text": 5, "calls": [None, "x", {"name": {}, "input": []}], "usage": "none"},
        {"role": "user", "blocks": [None, 5, {"type": "image", "mimeType": 5, "data": "x"}]},
        {"role": "nobody"},
        {},
    ]
    file.write_text(json.dumps(line, separators=(",", ":")) + "\n")
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs/strange")
        page.click(".grid a", "test/0")
        page.find(
            "main", "The line of this episode is broken: messages.0.tool.call: Input should be a valid string"
        )


def test_the_task_of_an_episode_is_shown_large_or_small(page: Page, tmp_path: Path) -> None:
    tasks = [TaskRef("adder", "test", n, {"question": "How much is it?", "more": "x" * n}) for n in (0, 9000)]
    write_run(tmp_path / "run", [episode(task.index or 0, task=task) for task in tasks])
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        for task in tasks:
            page.go("runs/run")
            page.click(".grid a", f"test/{task.index}")
            page.find(".side", "How much is it?")


def test_a_refusal_earlier_attempts_and_unreadable_arguments_are_shown(page: Page, tmp_path: Path) -> None:
    lost = replace(episode(0, None, outcome=replace(LOST, may_have_run=True)), id="before")
    broken = AgentMessage(calls=(ToolInvocation("look", {}, "1", "not valid JSON", '{"at": "a ho'),))
    told = (*episode(0).messages[:1], broken, ToolMessage("1", "look", [TextBlock(text="no")], ok=False))
    refused = replace(episode(0, None, outcome=Refused()), messages=told, attempts=2, earlier=(lost,))
    write_run(tmp_path / "refused", [refused])
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs/refused")
        page.click(".grid a", "test/0")
        page.find(".ending", "Refused. The model refused to continue")
        page.find(".ending.failed", "A call whose result is unknown may have run.")
        page.find('.step[data-step="1"]', "a ho")


def test_images_and_long_texts_come_from_blobs(page: Page, tmp_path: Path) -> None:
    pixels = b64encode(Path("docs/inspector-play.png").read_bytes()).decode()
    blocks: Blocks = [
        ImageBlock(data=pixels, mimeType="image/png"),
        ImageBlock(data=pixels, mimeType="text/html"),
    ]
    write_run(tmp_path / "pictures", [talk([UserMessage(blocks), *called(said("Yes."))])])
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs/pictures")
        page.click(".grid a", "test/0")
        picture = page.find(".turn.user img")
        page.until(
            lambda: page.run("return arguments[0].naturalWidth > 1000", picture), "there is no picture"
        )
        page.find(".turn.user p", "An image of type text/html")


def test_long_texts_are_folded(page: Page, tmp_path: Path) -> None:
    long = "\n".join(f"line {n}" for n in range(100))
    write_run(tmp_path / "long", [talk([UserMessage(said(long)), *called(said("Yes."))])])
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs/long")
        page.click(".grid a", "test/0")
        text = page.find(".turn.user pre")
        assert text.size["height"] < 300
        page.click(".turn.user button", "Show all 789 characters")
        page.until(lambda: text.size["height"] > 1500, "the text is still folded")


def test_a_long_conversation_comes_in_parts(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "long", [episode(0, steps=250)])
    with running("view", str(tmp_path)) as command:
        page.visit(command.line(r"on (http://\S+)")[1])
        page.go("runs/long")
        page.click(".grid a", "test/0")
        page.find('.step[data-step="1"]')
        assert page.all('.step[data-step="250"]') == []
        page.find(".side .hint", "Times of the first 401 messages.")
        page.click("button", "Show more: 100 of 501 messages remain")
        page.until(lambda: page.all('.step[data-step="250"]'), "the last call is missing")
        page.find(".ending", "Scored.")
        assert len(page.all(".step")) == 250


def test_a_server_that_records_has_the_tab_and_others_do_not(page: Page, folder: Path, stage: str) -> None:
    page.open(stage)
    page.find("#nav", "Environments")
    assert "Runs" not in page.find("#nav").text
    page.go("runs")
    page.find(".note", "This server keeps no records")
    server = Server([Stage])
    server.show_runs(RunsApi(folder))
    with serving(server) as url:
        page.open(url)
        page.click("#nav a", "Runs")
        page.click("a.run-name", "first")
        listed(page, *(f"test/{n}" for n in range(6)))
