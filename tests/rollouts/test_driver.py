"""Many episodes at once: which are played, how many at a time, and what a failure costs."""

from collections import Counter

from ors.client import AsyncEnvironment, Task
from ors.rollouts import Scored, TaskRef, episode_key, rollouts
from ors.rollouts.tasks import GivenTask
from tests.support.scripted_agents import Script, calls, reward

WIN = calls(reward(1.0, finished=True))


async def test_each_task_is_played_so_many_times(lab: AsyncEnvironment) -> None:
    spec = {"id": "whole"}
    tasks: list[GivenTask] = [
        ("train", 0),
        TaskRef("lab", "test", 1),
        Task("lab", spec),
        TaskRef("lab", spec=spec),
    ]
    found = [record async for record in rollouts(lab, tasks, Script(WIN), samples=3, reward="sum")]
    played = Counter(episode_key(record.task, record.sample) for record in found)
    for sample in range(3):
        assert played.pop(("lab", "train", 0, None, sample)) == 1
        assert played.pop(("lab", "test", 1, None, sample)) == 1
        assert played.pop(("lab", None, None, '{"id": "whole"}', sample)) == 2
    assert not played
    assert {(record.outcome, record.reward) for record in found} == {(Scored(), 1.0)}
    assert len({record.id for record in found}) == len({record.session for record in found}) == 12
