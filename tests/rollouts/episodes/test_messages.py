"""The messages of a conversation."""

from dataclasses import dataclass, fields, replace

from ors.client import ToolInvocation
from ors.rollouts import AgentMessage, Usage
from ors.rollouts.episodes.messages import timed

REPLY = AgentMessage("So.", (ToolInvocation("look", {}),), "Hm.", "length", Usage(1, 2), native={"id": 1})


def test_a_timed_reply_differs_by_its_time_only() -> None:
    assert timed(REPLY, 2.5) == replace(REPLY, seconds=2.5)
    unset = {
        each.name for each in fields(REPLY) if getattr(REPLY, each.name) == getattr(AgentMessage(), each.name)
    }
    assert unset == {"seconds", "role"}, "the reply above must set every field, so that none is lost"


@dataclass(frozen=True)
class Marked(AgentMessage):
    mark: str = ""


def test_a_reply_of_a_class_of_its_own_keeps_it() -> None:
    assert timed(Marked(mark="x"), 2.5) == Marked(seconds=2.5, mark="x")


def test_a_sum_with_an_unknown_part_has_no_cost() -> None:
    known = Usage(10, 2, cost=0.5)
    assert Usage() + known + Usage() + known == Usage(20, 4, cost=1.0)
    assert known + Usage(unknown=1) + known == Usage(20, 4, cost=None, unknown=1)
    assert known + Usage(1, 1) == Usage(11, 3)
