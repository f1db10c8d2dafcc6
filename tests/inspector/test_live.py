"""Sessions of others, seen in the browser."""

from threading import Thread

import pytest

from ors.client import ORS
from ors.errors import SessionLost, ToolCallError
from tests.support.browser import Page
from tests.support.hostile_environment import HOSTILE, Stage

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
