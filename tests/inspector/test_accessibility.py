"""Every view, examined by axe, light and dark, on a screen and on a phone."""

from collections.abc import Callable, Iterator
from importlib.resources import files

import pytest

from examples.countdown import Countdown
from ors import Server
from ors.client import ORS
from ors.inspector import RunsApi
from ors.rollouts import Failed
from tests.support.browser import Page
from tests.support.episode_records import episode
from tests.support.hostile_environment import Stage
from tests.support.live_server import serving
from tests.support.manual_environment import PROMPT, Manual
from tests.support.recorded_runs import called, many, said, talk, write_run

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.long]

AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
# What scrolls at a new width can be reached once the page is drawn, and no sooner: after the second frame.
EXAMINE = """
    const done = arguments[0];
    const frame = () => new Promise(requestAnimationFrame);
    frame().then(frame).then(() => axe.run({resultTypes: ["violations"]})).then(({ violations }) =>
        done(violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html.slice(0, 200))])));
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with everything that a page can show."""
    folder = tmp_path_factory.mktemp("runs")
    failed = episode(7, None, outcome=Failed("environment", "call", "ToolFailed", "it raised"), steps=3)
    long = talk(called(said(PROMPT)) + called(said("line\n" * 200)), index=8)
    write_run(folder / "first", [*many(60), failed, long])
    write_run(folder / "second", many(60, skill=0.8, seed=2))
    server = Server([Manual, Stage, Countdown])
    server.show_runs(RunsApi(folder))
    with serving(server) as url, ORS(url) as client:
        with client.environment("manual").session(split="train", index=0) as ended:
            ended.call_tool("answer", {"reward": 1, "lines": 1})
        with client.environment("countdown").session(split="train", index=0):
            yield url


def played(page: Page, url: str) -> None:
    page.play("manual/train/0", url)
    page.press_call()
    page.find(".step.ok")
    page.find(".over", "Next task")


def refused(page: Page, url: str) -> None:
    page.play("stage/train/0", url)
    for number, tool in enumerate(("refuse", "boom", "arrange"), 1):
        page.click(".tab", tool)
        page.press_call()
        if tool != "arrange":  # whose form is wrong
            page.find(f'.step[data-step="{number}"]:not(.running)')


def watched(page: Page, url: str) -> None:
    played(page, url)
    page.go(f"session/{page.find('.summary .sid').text}")
    page.find(".prompt h3", "The manual")
    page.find(".step.ok")


def live(page: Page, url: str) -> None:
    page.open(url, "live")
    page.find(".ended", "scored")
    page.find(".sessions td.act")


def searched(page: Page, url: str) -> None:
    page.open(url, "tasks/stage/train/3")
    page.find(".detail-pane h2", "train 3")
    page.type("Search all tasks", "task-2")
    page.find("p.where", "all 30 searched")


def exchange(page: Page, url: str) -> None:
    played(page, url)
    page.click('.step[data-step="1"] a', "Wire")
    page.find(".wire-detail .badge")


def enlarged(page: Page, url: str) -> None:
    page.play("manual/train/1", url)
    page.click(".enlarge")
    page.find("dialog.large img")


def at(view: str, css: str) -> Callable[[Page, str], None]:
    def go(page: Page, url: str) -> None:
        page.open(url, view)
        page.find(css)

    return go


def clicked(view: str, css: str) -> Callable[[Page, str], None]:
    def go(page: Page, url: str) -> None:
        page.open(url, view)
        page.click(".grid a")
        page.find(css)

    return go


VIEWS: dict[str, Callable[[Page, str], None]] = {
    "environments": at("environments", ".splits"),
    "environment": at("environments/stage", "details.tool"),
    "tasks": at("tasks/countdown/train/7", ".detail-pane h2"),
    "search": searched,
    "opening": at("play/manual/train/0", "button.primary"),
    "play": played,
    "refusals": refused,
    "image": enlarged,
    "live": live,
    "session": watched,
    "session that is gone": at("session/nothing", ".problem"),
    "wire": exchange,
    "runs": at("runs", "tr[data-run]"),
    "run": at("runs/first", ".grid a"),
    "episode": clicked("runs/first?task=8", ".turn"),
    "comparison": at("compare/first/second", ".grid a"),
    "pair": clicked("compare/first/second", '[aria-label="Run B"] .card'),
}


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(page: Page, url: str, view: str) -> None:
    VIEWS[view](page, url)
    page.run(AXE)
    found = {}
    try:
        for width in (1280, 390):
            device = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == 390}
            page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
            for scheme in ("light", "dark"):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
                found[width, scheme] = page.driver.execute_async_script(EXAMINE)
            assert page.run("return document.documentElement.scrollWidth") <= width  # type: ignore[operator]
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert {how: each for how, each in found.items() if each} == {}
