"""verifiers: a task, and what became of its episode."""

from typing import Any

import verifiers.v1 as vf

from ors.adapters.common.training import Training, component_means, recent, reward_of, told
from ors.rollouts import EpisodeRecord, Outcome, TaskRef, Truncated
from ors.rollouts.episodes.outcome import ended
from ors.rollouts.episodes.rules import Rules, reduce_components


class ORSData(vf.TaskData):
    """Where a task is, and how its episodes are played."""

    base_url: str
    environment: str
    split: str
    index: int
    arguments: dict[str, Any]
    secrets: list[str] = []


class ORSState(vf.State):
    """Outcome of an episode; what it has earned so far, while it is played."""

    reward: float | None = None
    rewards: list[float | None] = []
    components: list[dict[str, float]] = []
    """The named rewards of each step."""
    outcome: str = ""
    result: Outcome | None = None

    def note(self, record: EpisodeRecord) -> None:
        """Keeps what became of the episode."""
        self.result, self.reward, self.rewards = record.outcome, record.reward, list(record.rewards)
        self.components = [dict(record.components)]


class ORSTask(vf.Task[ORSData, ORSState]):
    """A task of an environment, which scores it itself."""

    @vf.reward(weight=1.0)
    async def environment_reward(self, trace: vf.Trace) -> float:
        """The reward of the episode. What became of it is in `trace.info` and the metrics.

        Raises:
            NoReward: it has none. The trace then has an error, and is left out.
        """
        state, data = trace.state, self.data
        if state.result is None:  # verifiers or its harness ended the episode
            late = Truncated("seconds" if trace.is_timeout else "tokens", str(trace.stop_condition))
            state.result = late if trace.is_timeout or trace.is_truncated else ended(state.rewards)
            rules = Rules(**Training.of(data.arguments).arguments)
            state.reward = rules.score(state.result, state.rewards)
            state.components = [reduce_components(state.components, rules.reward)]
        state.outcome, task = state.result.type, TaskRef(data.environment, data.split, data.index)
        named = state.components[0] if state.components else {}
        record = EpisodeRecord(
            "", task, 0, state.result, state.reward, tuple(state.rewards), (), components=named
        )
        trace.record_metrics(recent(data.base_url, data.environment).watch.count([record]))
        trace.record_metrics(component_means([record]))
        trace.info["ors"] = f"the episode {told(state.result)}"
        return reward_of(record)
