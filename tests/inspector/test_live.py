"""Sessions of others, seen in the browser."""

from threading import Thread

import pytest

from examples.word_hunt import WordHunt
from ors import Server
from ors.client import ORS
from ors.errors import SessionLost, ToolCallError
from tests.support.browser import Page
from tests.support.hostile_environment import HOSTILE, Stage
from tests.support.live_server import serving

pytestmark = pytest.mark.xdist_group("browser")


def test_another_clients_session_is_watched_live(page: Page, stage: str) -> None:
    with ORS(stage) as client, client.environment("stage").session(split="train", index=5) as session:
        page.open(stage, "live")
        row = page.find(f'tr[data-sid="{session.sid}"]')
        assert "task-5" in row.text
        assert "ready" in row.text
        page.click(f'tr[data-sid="{session.sid}"] a')
        page.find("h1", str(session.sid))
        page.find(".note", "No calls yet")
        session.call_tool("step", {"reward": 0.25})
        page.find('.step.ok[data-step="1"]', "reward 0.25")
        with pytest.raises(ToolCallError):
            session.call_tool("refuse", {})
        page.find('.step.refused[data-step="2"]', "The tool refused the call")
        session.call_tool("hostile", {})
        assert HOSTILE in page.find('.step.ok[data-step="3"]').text
        page.find(".summary .total", "0.25")
        page.click('.step[data-step="1"] a', "Wire")
        assert '"reward":0.25' in page.find(".wire-detail").text
        page.find(".wire-detail .event-end")


def test_a_call_that_runs_is_seen_and_its_session_can_be_ended(page: Page, stage: str) -> None:
    with ORS(stage) as client, client.environment("stage").session(split="train", index=6) as session:
        page.open(stage, f"session/{session.sid}")
        page.find(".note", "No calls yet")
        seen: list[Exception] = []

        def call() -> None:
            try:
                session.call_tool("wait", {})
            except SessionLost as error:
                seen.append(error)

        thread = Thread(target=call)
        thread.start()
        assert Stage.gates["task-6.waits"].wait(20)
        page.find(".step.running .since", "Running for")
        page.click("button", "End this session")
        page.click("button", "Really?")
        page.find(".step.failed", "Session deleted")
        page.find(".summary .state", "deleted")
        thread.join(20)
        Stage.gates["task-6.go"].set()
        assert seen


def test_counters_and_plots_follow_the_traffic(page: Page, stage: str) -> None:
    page.open(stage, "live")
    page.find(".tile", "Calls per second")
    with ORS(stage) as client, client.environment("stage").session(split="train", index=0) as session:

        def drawn() -> bool:
            session.call_tool("step", {})
            return bool(page.all('[aria-label^="Latency"] .line'))

        page.until(drawn, "the latency is not plotted")
        page.find(f'tr[data-sid="{session.sid}"]', "ready")
    page.until(lambda: not page.all(f'tr[data-sid="{session.sid}"]'), "the session is still listed")


def test_sessions_are_filtered_and_ended_from_the_list(page: Page, stage: str) -> None:
    with ORS(stage) as client:
        one = client.environment("stage").session(split="train", index=1).start()
        two = client.environment("wordhunt").session(split="train", index=1).start()
        page.open(stage, "live")
        page.find(f'tr[data-sid="{one.sid}"]')
        page.type("Environment", "wordhunt")
        page.until(lambda: not page.all(f'tr[data-sid="{one.sid}"]'), "the filter does nothing")
        page.click(f'tr[data-sid="{two.sid}"] button', "End")
        page.click(f'tr[data-sid="{two.sid}"] button', "Really?")
        page.until(lambda: not page.all(f'tr[data-sid="{two.sid}"]'), "the session is still listed")
        with pytest.raises(SessionLost):
            two.ping()
        one.close()


def test_learning_is_shown_by_environment_and_ended_episodes_stay(page: Page) -> None:
    with serving(Server([Stage, WordHunt])) as url, ORS(url) as client:
        page.open(url, "live")
        page.find(".learning", "No episode has ended yet.")
        for reward in (1, 0):
            with client.environment("stage").session(split="train", index=3) as session:
                session.call_tool("step", {"reward": reward, "finished": True})
        page.find('tr[data-environment="stage"]', "50%")
        cells = page.until(lambda: page.find('tr[data-environment="stage"]').text.split(), "no row")
        assert cells == ["stage", "2", cells[2], "0.5", "50%", "0.5", "50%"]
        page.find(".tile", "Solved\n50%")
        page.count("table.ended tbody tr", 2)
        ended = page.until(lambda: [one.text for one in page.all("table.ended tbody tr")], "no rows")
        assert [text.split("\n")[-1].split()[-4] for text in ended] == ["0", "1"]
        assert "task-3" in ended[0]
        for title in ("Episodes", "Mean reward", "Solved", "Sessions", "Calls", "Latency"):
            page.until(
                lambda: page.find(".tile", title).find_elements("css selector", ".legend"),  # noqa: B023
                f"{title} has no legend",
            )
        page.type("Environment", "wordhunt")
        page.find("table.ended", "Episodes stay here")


def test_a_watched_session_shows_its_prompt(page: Page, stage: str) -> None:
    with ORS(stage) as client, client.environment("stage").session(split="train", index=7) as session:
        page.open(stage, f"session/{session.sid}")
        page.find(".prompt", "No prompt to show")
        session.get_prompt()
        page.find(".prompt", HOSTILE)
        page.driver.refresh()
        page.find(".prompt", HOSTILE)
        assert page.find('section[aria-label="Task"]', "task-7")


def test_a_session_that_is_gone_is_told_and_leads_to_the_others(page: Page, stage: str) -> None:
    with ORS(stage) as client, client.environment("stage").session(split="train", index=7) as session:
        page.open(stage, f"session/{session.sid}")
        page.find(".summary .state", "ready")
    page.find(".summary .state", "deleted")
    page.open(stage, "session/unknown")
    page.find(".problem", "Session not found")
    page.click("a", "All sessions")
    page.find("h1", "Live")


def test_an_episode_that_nobody_watched_opens_after_its_end(page: Page, stage: str) -> None:
    with ORS(stage) as client, client.environment("stage").session(split="train", index=9) as session:
        session.get_prompt()
        session.call_tool("step", {"reward": 0.75})
        sid = session.sid
    page.open(stage, "live")
    page.click(f'tr[data-ended^="{sid}"] a')
    page.find(".summary .state", "ended")
    page.find(".summary .total", "0.75")
    page.find(".prompt", "Act.")
    step = page.find('.step.ok[data-step="1"]', "reward 0.75")
    assert "0.75" in step.find_element("css selector", ".input").text
    assert not page.driver.find_element("css selector", ".side .actions").is_displayed()


def test_on_a_phone_the_columns_that_matter_are_in_sight(page: Page, stage: str) -> None:
    with ORS(stage) as client, client.environment("stage").session(split="train", index=8) as session:
        device = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
        try:
            page.open(stage, "live")
            row = page.find(f'tr[data-sid="{session.sid}"]')
            assert row.text.split()[1:] == ["stage", "ready", "–", "End"]
            button = row.find_element("css selector", "button")
            assert button.rect["x"] + button.rect["width"] <= 390
            heads = [one.text for one in page.all(".learning th") if one.is_displayed()]
            assert heads == ["Environment", "Per second", "Mean reward", "Solved"]
        finally:
            page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        button = page.find(f'tr[data-sid="{session.sid}"] button')
        page.run("document.querySelector('.sessions').style.width = '1px'")  # as narrow as it gets
        assert button.rect["height"] < 40
