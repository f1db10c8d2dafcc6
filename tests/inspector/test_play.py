"""Episodes played in the browser."""

import json
import subprocess
import sys

import pytest
from selenium.webdriver.common.keys import Keys

from ors import Limits, Server
from ors.client import ORS
from tests.support.browser import Page, replace
from tests.support.hostile_environment import HOSTILE, Stage
from tests.support.live_server import serving
from tests.support.terminal_environment import Essay

pytestmark = pytest.mark.xdist_group("browser")


def last(page: Page, number: int, status: str) -> str:
    """The text of a step, once it has that status."""
    return page.find(f'.step.{status}[data-step="{number}"]').text


def test_an_episode_is_played_to_its_end_with_reward_and_plot(page: Page, stage: str) -> None:
    page.play("wordhunt/train/0", stage)
    assert "hidden word of five letters" in page.find(".prompt").text
    page.click(".tab", "guess")
    page.type("word", "amble")
    page.press(Keys.ENTER)
    assert "reward 0.3" in last(page, 1, "ok")
    page.type("word", "amber")
    page.press_call()
    end = last(page, 2, "ok")
    assert "reward 0.7" in end
    assert "finished" in end
    assert "Solved." in end
    assert page.find(".summary .total").text == "1"
    assert page.find(".summary .state").text == "finished"
    assert page.find(".rewards .bar").get_attribute("data-bars") == "2"
    assert page.find(".rewards svg").get_attribute("aria-label") == (
        "Reward per step and in total; total 1 after 2 steps"
    )
    assert page.run("return document.activeElement.textContent") == "Next task"
    assert [one.text for one in page.all("button.primary") if one.is_displayed()] == ["Next task"]
    page.press(Keys.ENTER)
    page.find("button", "Open the session")
    assert page.field("Index").get_attribute("value") == "1"


def test_a_reload_comes_back_to_the_episode(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    sid = page.find(".summary .sid").text
    assert page.driver.current_url.endswith(f"#/play/stage/train/0?session={sid}")
    page.click(".tab", "whole")
    page.type("number", str(2**70))
    page.press_call()
    last(page, 1, "ok")
    page.driver.refresh()
    assert str(2**70) in last(page, 1, "ok")
    assert page.find(".summary .sid").text == sid
    assert HOSTILE in page.find(".prompt").text
    page.click(".tab", "step")
    page.press_call()
    assert "reward 0.5" in last(page, 2, "ok")
    page.click("button", "End the session")
    page.click("button", "Really?")
    page.find(".over", "The session has ended.")
    page.driver.refresh()
    page.find(".over", "The session has ended.")
    last(page, 2, "ok")


def test_a_call_that_runs_while_the_page_is_loaded_again_is_rejoined(page: Page, stage: str) -> None:
    page.play("stage/train/9", stage)
    page.click(".tab", "wait")
    page.press_call()
    assert Stage.gates["task-9.waits"].wait(20)
    page.until(
        lambda: page.run("return sessionStorage['ors-episode'].includes('\"taskId\":\"')"), "no task id"
    )
    page.driver.refresh()
    page.find(".step.running .since", "Running for")
    Stage.gates["task-9.go"].set()
    assert "waited" in last(page, 1, "ok")


def test_an_address_of_a_session_that_another_tab_has_opened_leads_to_watching_it(
    page: Page, stage: str
) -> None:
    with ORS(stage) as client, client.environment("stage").session(split="train", index=0) as session:
        page.open(stage, f"play/stage/train/0?session={session.sid}")
        page.click(".note a", "Watch it")
        page.find("h1", str(session.sid))


def test_input_is_checked_before_it_is_sent(page: Page, stage: str) -> None:
    page.play("wordhunt/train/1", stage)
    page.click(".tab", "guess")
    page.type("word", "too long")
    page.press_call()
    assert "must match" in page.find(".field .problem").text
    assert page.all(".step") == []
    assert page.driver.switch_to.active_element == page.field("word")


def test_a_form_is_made_for_every_shape_of_input(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    page.click(".tab", "arrange")
    page.press_call()
    assert page.find(".field .problem").text
    page.type("title", "Opening")
    page.type("mood", "wild")
    page.type("loud", "true")
    page.type("count", "12")
    page.press_call()
    assert page.find(".field .problem", "at most 9").text
    page.type("count", "7")
    page.type("weight", "2.5")
    tags, places = (one for one in page.all(".field button") if one.text == "Add an item")
    tags.click()
    page.press("red")
    places.click()
    page.press("4")
    page.type("extra", '{"deep": [1, {"a": null}]}')
    page.press_call()
    told = json.loads(page.find('.step.ok[data-step="1"] .result pre').text)
    assert told == {
        "title": "Opening", "mood": "wild", "loud": True, "count": 7, "weight": 2.5, "tags": ["red"],
        "places": [{"x": 4, "y": 0}], "extra": {"deep": [1, {"a": None}]},
    }  # fmt: skip


def test_raw_json_is_the_way_out(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    page.click(".tab", "step")
    page.click("button", "Raw JSON")
    page.type("Input as JSON", "{")
    page.press_call()
    page.find(".form .problem", "Not valid JSON")
    page.type("Input as JSON", '{"reward": -2, "finished": false}')
    page.press_call()
    assert "reward -2" in last(page, 1, "ok")


def test_integers_of_any_size_survive(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    page.click(".tab", "whole")
    page.type("number", "12345678901234567890")
    page.press_call()
    page.find(".step.ok pre", "12345678901234567890")


def test_what_an_environment_returns_is_shown_as_text(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    assert HOSTILE in page.find(".prompt").text
    assert len(page.all(".prompt img")) == 1
    assert "image/svg+xml" in page.find(".prompt .muted").text
    for number, (tool, status) in enumerate(
        [("hostile", "ok"), ("refuse", "refused"), ("boom", "failed"), ("step", "ok")], 1
    ):
        page.click(".tab", tool)
        page.press_call()
        assert "<script>window.hacked = 1</script><img src=x" in last(page, number, status)
    assert page.all("main script, main img[src=x], main iframe") == []


def test_a_block_of_an_unknown_kind_is_shown_as_data_and_not_as_an_image(page: Page, stage: str) -> None:
    page.open(stage)
    shown = page.driver.execute_async_script("""
        const done = arguments[0];
        const block = { type: "audio", data: "UklGRg==", mimeType: "audio/wav" };
        import("/-/page/widgets/show.js").then(({ blocks }) => done(blocks([block])[0].textContent));
    """)
    assert isinstance(shown, str)
    assert "audio/wav" in shown
    assert "image" not in shown.lower()


def test_refusals_and_failures_have_looks_of_their_own(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    page.click(".tab", "refuse")
    page.press_call()
    assert "The tool refused the call" in last(page, 1, "refused")
    page.click(".tab", "boom")
    page.press_call()
    failed = last(page, 2, "failed")
    assert "The call failed" in failed
    assert "environment" in failed


def test_a_running_call_is_seen_to_run_and_can_be_aborted(page: Page, stage: str) -> None:
    page.play("stage/train/3", stage)
    page.click(".tab", "wait")
    page.press_call()
    assert Stage.gates["task-3.waits"].wait(20)
    page.find(".step.running .since", "Running for")
    page.click(".summary button", "Abort")
    page.click(".summary button", "Really?")
    assert "Session deleted" in last(page, 1, "failed")
    assert page.find(".summary .state").text == "ended"
    Stage.gates["task-3.go"].set()


def test_the_pings_of_a_running_call_are_counted(page: Page) -> None:
    with serving(Server([Stage], limits=Limits(ping_seconds=0.1))) as url:
        page.play("stage/train/4", url)
        page.click(".tab", "wait")
        page.press_call()
        page.find(".step.running .since", "2 pings")
        Stage.gates["task-4.go"].set()
        page.find(".step.ok", "waited")
        page.click(".step.ok a", "Wire")
        page.find(".part-head .badge", "ping")


def test_a_megabyte_is_shown_in_parts(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    page.click(".tab", "huge")
    page.press_call()
    page.click(".step.ok button", "Show all 1,048,576 characters")
    shown = page.run("return document.querySelector('.step .long').textContent.length")
    assert shown == 2**20
    page.click(".tab", "step")
    page.press_call()
    last(page, 2, "ok")


@pytest.mark.long
def test_two_hundred_steps_stay_responsive(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    page.click(".tab", "step")
    page.driver.set_script_timeout(50)
    slowest = page.driver.execute_async_script("""
        const done = arguments[0];
        const call = document.querySelector(".tools button[type=submit]");
        let slowest = 0, calls = 0, last = performance.now();
        const frame = () => {
            slowest = Math.max(slowest, performance.now() - last);
            last = performance.now();
            if (document.querySelectorAll(".step.ok").length === 200) return done(slowest);
            if (!call.disabled && calls < 200) { calls += 1; call.click(); }
            requestAnimationFrame(frame);
        };
        frame();
    """)
    page.count(".step.ok", 200)
    assert page.find(".summary .total").text == "100"
    assert page.find(".rewards .bar").get_attribute("data-bars") == "200"
    # Not a measurement: a page that redraws everything with each step freezes for seconds.
    assert isinstance(slowest, float | int)
    assert slowest < 3000


def test_an_edited_task_and_secrets_reach_the_environment(page: Page, stage: str) -> None:
    page.open(stage, "play/stage/train/0")
    page.click("summary", "Edit the task")
    edited = page.until(
        lambda: one if (one := page.find(".more textarea")).get_attribute("value") else None, "no task"
    )
    replace(edited, '{"id": "mine"}')
    page.click("summary", "Secrets")
    page.click("button", "Add a secret")
    page.press("token")
    value = page.find("input[type=password]")
    value.send_keys("s3cret-value")
    page.click("button", "Open the session")
    page.click(".tab", "secret")
    page.press_call()
    page.find(".step.ok", "12 characters")
    page.find("h1", "edited task")
    page.go("wire")
    page.click(".exchanges a", "POST /create_session")
    page.click(".exchanges tr:has(+ tr a[aria-current]) a")
    assert '"id":"mine"' in page.find(".wire-detail").text
    assert "•••" in page.find(".wire-detail").text
    assert "s3cret-value" not in page.driver.page_source


def copied(page: Page, label: str) -> str:
    """What a button puts on the clipboard."""
    page.run("window.taken = ''; navigator.clipboard.writeText = async (text) => { window.taken = text }")
    page.click("button", label)
    return page.until(lambda: str(page.run("return window.taken")), "nothing was copied")


def test_an_episode_is_copied_in_forms_that_reproduce_it(page: Page, stage: str) -> None:
    page.play("stage/train/2", stage)
    page.click(".tab", "step")
    page.type("reward", "0.25")
    page.press_call()
    last(page, 1, "ok")
    page.click(".tab", "refuse")
    page.press_call()
    last(page, 2, "refused")
    told = json.loads(copied(page, "Copy JSON"))
    assert told["total_reward"] == 0.25
    assert [call["status"] for call in told["calls"]] == ["ok", "refused"]
    python = subprocess.run(
        [sys.executable, "-c", copied(page, "Copy Python")], capture_output=True, text=True, timeout=30
    )
    assert python.returncode == 0, python.stderr
    assert "reward=0.25" in python.stdout
    assert "no: no <script>" in python.stdout
    curl = subprocess.run(["sh", "-c", copied(page, "Copy curl")], capture_output=True, text=True, timeout=30)
    assert '"reward":0.25' in curl.stdout
    assert '"reason":"mood"' in curl.stdout


def test_an_episode_goes_on_while_other_views_are_looked_at(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    page.click(".tab", "step")
    page.press_call()
    last(page, 1, "ok")
    page.go("tasks/countdown")
    page.find("h1", "Tasks")
    page.go("play")
    page.press_call()
    last(page, 2, "ok")


def test_a_session_that_is_ended_elsewhere_is_told(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    sid = page.find(".summary .sid").text
    with ORS(stage) as client:
        client.environment("stage").attach(sid).close()
    page.click(".tab", "step")
    page.press_call()
    assert "lost" in page.find(".summary .state", "lost").text


def test_the_tool_for_the_last_message_is_seen_and_called(page: Page) -> None:
    with serving(Server([Essay])) as url:
        page.open(url)
        assert page.find(".tool .tag").text == "terminal"
        page.play("essay/train/0", url)
        assert "takes the agent's last message" in page.find(".tools").text
        page.type("answer", "elppa")
        page.press_call()
        end = last(page, 1, "ok")
    assert "you said elppa" in end
    assert "reward 1" in end
