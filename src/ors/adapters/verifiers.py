"""verifiers: a taskset, its tasks, and the harness that plays them."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult

from ors.adapters.training import (
    RETRIES,
    Training,
    TrainingArguments,
    component_means,
    recent,
    reward_of,
    secrets_from,
    shared_client,
    told,
)
from ors.client import ORS
from ors.rollouts import (
    AgentMessage,
    ContextExceeded,
    Conversation,
    EpisodeRecord,
    ModelError,
    Outcome,
    PlayArguments,
    TaskRef,
    ToolMessage,
    Truncated,
    play,
)
from ors.rollouts.agents import ModelAgent
from ors.rollouts.episodes.outcome import Party, ended, worth_retrying
from ors.rollouts.episodes.rules import Rules, reduce_components
from ors.types import ToolSpec

__all__ = ["ORSHarness", "ORSTaskset"]


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
        """Keeps how the episode ended."""
        self.result, self.reward, self.rewards = record.outcome, record.reward, list(record.rewards)
        self.components = [dict(record.components)]


class ORSTask(vf.Task[ORSData, ORSState]):
    """A task of an environment, which scores it itself."""

    @vf.reward(weight=1.0)
    async def environment_reward(self, trace: vf.Trace) -> float:
        """The reward of the episode. How it ended is in `trace.info` and the metrics.

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


class ORSTasksetConfig(vf.TasksetConfig):
    """Which tasks, and how their episodes are played. verifiers makes one without values first."""

    base_url: str = ""
    environment: str = ""
    split: str = ""
    reward: Literal["last", "sum", "max"] | None = None
    """How to combine the rewards of the steps."""
    truncated_reward: float | None = 0.0
    unscored_reward: float | None = 0.0
    failed_reward: dict[Party, float] = {}
    retries: int = RETRIES
    nudge: str | None = None
    secrets: list[str] = []
    """Names of the environment's secrets, taken from environment variables."""


class ORSTaskset(vf.Taskset[ORSTask, ORSTasksetConfig]):
    """The tasks of a split. Their prompts come from the environment, when an episode begins."""

    def load(self) -> Iterator[ORSTask]:
        """All tasks of the split.

        Raises:
            ValueError: the configuration lacks something.
        """
        config = self.config
        missing = [
            name for name in ("base_url", "environment", "split", "reward") if not getattr(config, name)
        ]
        if missing:
            raise ValueError(f"The taskset needs {', '.join(missing)}: set env.taskset.{missing[0]}")
        with ORS(config.base_url) as client:
            count = client.environment(config.environment).num_tasks(config.split)
        same = config.model_dump(include=set(ORSData.__annotations__))
        same["arguments"] = config.model_dump(include=set(TrainingArguments.__annotations__))
        for index in range(count):
            name = f"{config.environment}/{config.split}/{index}"
            yield ORSTask(ORSData(id=name, name=name, prompt=name, index=index, **same), config.task)


class ORSHarness(vf.Harness[vf.HarnessConfig]):
    """Plays episodes in this process; every model request goes through the interception."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: ORSData,
        **more: Any,
    ) -> ProgramResult:
        """Plays one episode; restarts if the infrastructure fails before the model is asked."""
        env = shared_client(data.base_url).environment(data.environment)
        training = Training.of(data.arguments)  # type: ignore[arg-type]
        arguments: PlayArguments = {**training.arguments, "system": data.system_prompt}
        model = ModelAgent("openai", ctx.model, base_url=endpoint, api_key=secret)
        try:
            for _ in range(training.retries + 1):
                session = env.session(secrets=secrets_from(data.secrets), split=data.split, index=data.index)
                record = await play(session, _Intercepted(model, trace), **arguments)
                if trace.calls or not worth_retrying(record.outcome):
                    break
        finally:
            await model.close()
        trace.state.note(record)
        return ProgramResult(exit_code=0, stdout="", stderr="")


class _Intercepted:
    """The model behind the interception, which refuses requests when a limit of the run is reached."""

    def __init__(self, model: ModelAgent, trace: vf.Trace) -> None:
        self._model, self._trace = model, trace

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        # If time is up, nobody gets a record.
        steps = [each for each in conversation.messages if isinstance(each, ToolMessage)]
        self._trace.state.rewards = [each.reward for each in steps]
        self._trace.state.components = [each.components for each in steps]
        try:
            return await self._model.reply(conversation, tools)
        except ModelError:
            if self._trace.stop_condition is None:
                raise
            raise ContextExceeded(f"the run was stopped: {self._trace.stop_condition}") from None
