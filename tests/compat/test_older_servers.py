"""Servers of older copies of the standard, which leave out what is required today."""

import json
from collections.abc import Iterator
from typing import get_args

import pytest

from ors import Server, ToolSpec
from ors.client import ORS, Provider
from ors.conformance import check
from tests.support.cli_environments import Park
from tests.support.commands import refused as command
from tests.support.faulty_proxy import spoiled
from tests.support.live_server import serving
from tests.support.protocol_faults import tools, without

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server whose tools have no `input_schema`."""
    bare = tools("tools task_tools", lambda listed: [without("input_schema")(tool) for tool in listed])
    with serving(Server([Park])) as whole, spoiled(whole, bare) as address:
        yield address


def test_tools_without_a_schema_are_listed_and_called(url: str) -> None:
    with ORS(url) as client, client.environment("park").session(split="train", index=0) as session:
        assert {tool.input_schema for tool in session.list_tools()} == {None}
        for format in get_args(Provider):
            assert len(session.list_tools(format)) == 6
        assert session.call_tool("submit", {"answer": 3}).reward == 1.0


def test_commands_use_tools_without_a_schema(url: str) -> None:
    assert "submit" in command("tools", url).out
    called = command("call", url, "submit", "answer=3", "--split", "train", "--index", "0", "--json")
    assert json.loads(called.out)["reward"] == 1.0, called.err


def test_a_missing_schema_is_a_remark_of_the_checks_and_not_a_fault(url: str) -> None:
    report = check(url, patience=4)
    faults = {(r.requirement.id, r.requirement.level) for r in report.of("failed")}
    assert faults == {("tools.schema-present", "should")}


def test_the_schema_of_a_tool_may_be_left_out() -> None:
    assert ToolSpec(name="noop", description="").input_schema is None
