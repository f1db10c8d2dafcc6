"""Environments and tasks in the browser."""

import pytest
from selenium.webdriver.common.keys import Keys

from tests.support.browser import Page, replace

pytestmark = pytest.mark.xdist_group("browser")


def test_environments_show_what_they_offer(page: Page, stage: str) -> None:
    page.open(stage)
    page.find(".lead", "A stage for <b>everything</b>")
    assert page.find(".splits", "1,000,000 tasks")
    page.go("environments/stage")
    page.count("section.card", 1)
    table = page.find("details.tool", "arrange").text
    for part in (
        '"calm" | "wild"',
        "list of object",
        "at most 20 characters",
        "What it is called.",
        "required",
    ):
        assert part in table


def test_a_million_tasks_are_paged_through(page: Page, stage: str) -> None:
    page.open(stage, "tasks/countdown/train")
    page.find(".where", "0–24 of 1,000,000 tasks")
    page.count(".tasks tbody tr", 25)
    page.click("button[aria-label='Last page']")
    page.find(".where", "999,975–999,999")
    replace(page.find(".page-number"), f"20001{Keys.ENTER}")
    page.find(".where", "500,000–500,024")
    page.run("document.activeElement.blur()")
    page.press(Keys.ARROW_RIGHT)
    page.find(".where", "500,025–500,049")


def test_all_tasks_are_searched_and_a_task_is_shown_as_a_tree(page: Page, stage: str) -> None:
    page.open(stage, "tasks/stage/train")
    page.count(".tasks tbody tr", 25)
    page.type("Search all tasks", "task-27")  # on the second page
    page.count(".tasks tbody tr", 1)
    page.find("p.where", "1 task found, all 30 searched")
    page.click(".tasks a", "27")
    detail = page.find(".detail-pane", "train 27").text
    assert '"task-27"' in detail
    assert str(2**60 + 27) in detail
    assert page.driver.current_url.endswith("#/tasks/stage/train/27")
    page.type("Search all tasks", "nothing like it")
    page.find(".tasks td", "No task matches.")
    page.type("Search all tasks", "task")
    page.count(".tasks tbody tr", 25)
    page.click("button", "Search on")
    page.count(".tasks tbody tr", 30)
    page.click(".tasks a", "27")
    page.click("a", "Play this task")
    page.find("h1", "stage · train 27")
    page.find(".tools")


def test_a_link_leads_to_a_task(page: Page, stage: str) -> None:
    page.open(stage, "tasks/countdown/test/9876")
    page.find(".detail-pane h2", "test 9,876")
    page.find(".where", "9,875–9,899 of 10,000")
    page.find("tr.chosen", "9,876")


def test_it_is_usable_from_the_keyboard_alone(page: Page, stage: str) -> None:
    page.open(stage)
    page.find(".splits")
    for _ in range(40):
        page.press(Keys.TAB)
        if page.driver.switch_to.active_element.text == "Play":
            break
    page.press(Keys.ENTER)
    page.find("h1", "Play")
    for _ in range(40):
        page.press(Keys.TAB)
        if page.driver.switch_to.active_element.text == "Open the session":
            break
    page.press(Keys.ENTER)
    page.find(".tools")


@pytest.mark.parametrize(
    "view", ["environments", "tasks/stage/train/0", "play/stage/train/0", "live", "wire"]
)
def test_nothing_is_wider_than_a_phone(page: Page, stage: str, view: str) -> None:
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        page.open(stage, view)
        page.find("h1")
        page.until(lambda: not page.all("main p.muted") or page.all(".card"), "still loading")
        assert page.run("return document.documentElement.scrollWidth") == 390
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
