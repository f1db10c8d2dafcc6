"""Named rewards: from the tool that gives them to the client that reads them."""

from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
from pydantic import ValidationError

import ors.testing
from ors import Environment, RunToolOutput, RunToolSuccess, ToolOutput, tool
from ors._rewards import MOST_COMPONENTS
from ors.errors import ToolFailed
from ors.types import reward_components

PARTS = {"correct": 1.0, "format": 0.2}


def test_the_reward_is_the_sum_of_named_rewards_unless_it_is_given() -> None:
    output = ToolOutput("done", rewards=PARTS)
    assert (output.reward, output.rewards) == (1.2, PARTS)
    assert ToolOutput("done", rewards={"a": 0.1, "b": 0.2, "c": 0.3}).reward == 0.6
    assert ToolOutput("done", rewards={"cost": -1, "correct": True}).rewards == {"cost": -1.0, "correct": 1.0}
    assert ToolOutput("done", rewards=PARTS, reward=0.0).reward == 0.0


def test_no_names_are_no_reward() -> None:
    for output in (ToolOutput("on"), ToolOutput("on", rewards={}), ToolOutput("on", rewards=None)):
        assert (output.reward, output.rewards, output.metadata) == (None, {}, None)


def test_named_rewards_travel_in_the_metadata_so_that_the_standard_shapes_stay() -> None:
    given = {"seconds": 3}
    output = ToolOutput("done", given, finished=True, rewards=PARTS)
    wire = {"blocks": [{"text": "done", "detail": None, "type": "text"}], "reward": 1.2, "finished": True}
    assert output.model_dump() == {**wire, "metadata": {"seconds": 3, "reward_components": PARTS}}
    assert given == {"seconds": 3}
    assert ToolOutput.model_validate(output.model_dump()).rewards == PARTS
    told = RunToolOutput(RunToolSuccess(output=output)).model_dump_json(exclude_unset=True)
    assert '"reward_components":{"correct":1.0,"format":0.2}' in told
    assert '"reward":1.2' in told


def test_numbers_of_other_kinds_become_floats() -> None:
    rewards = ToolOutput("done", rewards={"a": Decimal("0.5"), "b": 2}).rewards  # type: ignore[dict-item]
    assert rewards == {"a": 0.5, "b": 2.0}
    assert {type(value) for value in rewards.values()} == {float}


@pytest.mark.parametrize(
    ("rewards", "told"),
    [
        ({"good": 1.0, "bad": nan}, "'bad' is nan, not a finite number"),
        ({"bad": inf}, "'bad' is inf, not a finite number"),
        ({"a": inf, "b": -inf}, "'a' is inf, not a finite number"),
        ({"bad": "1.0"}, "'bad' is '1.0', not a finite number"),
        ({"bad": None}, "'bad' is None, not a finite number"),
        ({"bad": [1.0]}, r"'bad' is \[1.0\], not a finite number"),
        ({"bad": {"nested": 1.0}}, "'bad' is {'nested': 1.0}, not a finite number"),
        ({"bad": 10**400}, "'bad' is 10+, not a finite number"),
        ({"": 1.0}, "'' is not a name: use 1 to 64 printable characters"),
        ({"a\nb": 1.0}, r"'a\\nb' is not a name"),
        ({"a" * 65: 1.0}, "'a+.* is not a name"),
        ({1: 1.0}, "1 is not a name"),
        ({f"n{n}": 1.0 for n in range(MOST_COMPONENTS + 1)}, "65 names are too many; the limit is 64"),
        ({"a": 1e308, "b": 1e308}, "their sum is too large for a number"),
        ([("a", 1.0)], r"give a dictionary of names and numbers, .* not \[\('a', 1.0\)\]"),
        (1.0, "give a dictionary of names and numbers"),
    ],
)
def test_a_bad_named_reward_is_refused_by_name(rewards: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"^rewards: {told}"):
        ToolOutput("done", rewards=rewards)


def test_the_other_fields_are_still_checked_beside_named_rewards() -> None:
    with pytest.raises(ValidationError, match="finshed"):
        ToolOutput("done", rewards=PARTS, finshed=True)
    with pytest.raises(ValidationError, match="metadata"):
        ToolOutput("done", metadata=[1], rewards=PARTS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metadata", "read"),
    [
        (None, {}),
        ({}, {}),
        ({"reward_components": {"a": 1, "b": 0.5}}, {"a": 1.0, "b": 0.5}),
        ({"reward_components": {"a": 1.0, "b": None, "code": "xxh64:ab", "c": nan, "d": [1]}}, {"a": 1.0}),
        ({"reward_components": {"": 1.0, "passed": True, "e": 10**400}}, {"passed": 1.0}),
        ({"reward_components": [1.0]}, {}),
        ({"reward_components": "a"}, {}),
        ({"reward_components": {f"n{n}": 1.0 for n in range(1000)}}, {}),
    ],
)
def test_whatever_other_servers_send_is_read_with_care(metadata: Any, read: dict[str, float]) -> None:
    assert reward_components(metadata) == read
    assert ToolOutput.model_construct(blocks=[], metadata=metadata).rewards == read


class Parts(Environment):
    """Gives named rewards."""

    tasks = {"train": [{}]}

    def get_prompt(self) -> str:
        return "Call give."

    @tool
    def give(self, value: str) -> ToolOutput:
        """Gives a named reward."""
        return ToolOutput("given", rewards={"correct": float(value), "format": 0.2}, finished=True)


async def test_a_client_reads_named_rewards_and_a_bad_one_is_a_failure_never_a_score() -> None:
    async with ors.testing.session(Parts, split="train", index=0) as session:
        output = await session.call_tool("give", {"value": "1"})
        assert (output.reward, output.rewards) == (1.2, PARTS)
    async with ors.testing.session(Parts, split="train", index=0) as session:
        with pytest.raises(ToolFailed):
            await session.call_tool("give", {"value": "nan"})
