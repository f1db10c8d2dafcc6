"""The wire view in the browser."""

import pytest

from tests.support.browser import Page

pytestmark = pytest.mark.xdist_group("browser")


def test_a_call_is_shown_raw_with_its_events_and_times(page: Page, stage: str) -> None:
    page.play("stage/train/0", stage)
    page.click(".tab", "whole")
    page.type("number", "7")
    page.press_call()
    page.click(".step.ok a", "Wire")
    detail = page.find(".wire-detail", "POST /stage/call HTTP/1.1").text
    assert '{"name":"whole","input":{"number":7}}' in detail
    assert "X-Session-ID: " in detail
    assert "HTTP/1.1 200" in detail
    assert "event: task_id" in detail
    assert 'event: end\ndata: {"ok":true' in detail
    assert [one.text for one in page.all(".part-head .badge")] == ["task_id", "end"]
    assert page.find(".part-head .time").text.startswith("+0.")
    page.click("label", "Calls only")
    page.count(".exchanges tbody tr", 1)


def test_a_refused_request_is_shown_with_its_status(page: Page, stage: str) -> None:
    page.open(stage, "tasks/stage/train/99999")
    page.find(".problem", "Invalid index")
    page.go("wire")
    page.find(".exchanges .bad", "400")
    page.click(".exchanges tr:has(.bad) a")
    page.find(".wire-detail", "HTTP/1.1 400")
