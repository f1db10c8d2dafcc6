"""verifiers: a taskset, and the harness that plays its tasks."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import verifiers.v1 as vf
from verifiers.v1.runtimes import ProgramResult

from ors.adapters.common.clients import shared_client
from ors.adapters.common.secrets import secrets_from
from ors.adapters.common.training import NoReward
from ors.client import ORS
from ors.rollouts import AgentMessage, ContextExceeded, Conversation, ModelError, PlayArguments, play
from ors.rollouts.agents import ModelAgent
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
    """Outcome of an episode."""

    reward: float | None = None
    rewards: list[float | None] = []
    outcome: str = ""


class ORSTask(vf.Task[ORSData, ORSState]):
    """A task of an environment, which scores it itself."""

    @vf.reward(weight=1.0)
    async def environment_reward(self, trace: vf.Trace) -> float:
        assert trace.state.reward is not None, "the harness raises if there is none"
        return float(trace.state.reward)


class ORSTasksetConfig(vf.TasksetConfig):
    """Which tasks, and how their episodes are played. verifiers makes one without values first."""

    base_url: str = ""
    environment: str = ""
    split: str = ""
    reward: Literal["last", "sum", "max"] | None = None
    """How the rewards of the steps become one."""
    truncated_reward: float | None = None
    unscored_reward: float | None = None
    nudge: str | None = None
    secrets: list[str] = []
    """Names of those that the environment gets, from the variables of the process."""


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
        arguments = config.model_dump(include={"reward", "truncated_reward", "unscored_reward", "nudge"})
        for index in range(count):
            name = f"{config.environment}/{config.split}/{index}"
            where = {"environment": config.environment, "split": config.split, "index": index}
            how = {"base_url": config.base_url, "arguments": arguments, "secrets": config.secrets}
            data = ORSData(id=name, name=name, prompt=name, **where, **how)
            yield ORSTask(data, config.task)


class ORSHarnessConfig(vf.HarnessConfig):
    """The harness has no options of its own."""


class ORSHarness(vf.Harness[ORSHarnessConfig]):
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
        **_: Any,
    ) -> ProgramResult:
        """Plays one episode.

        Raises:
            NoReward: it failed, or is unscored. The trace then has an error, and is left out.
        """
        env = shared_client(data.base_url).environment(data.environment)
        arguments: PlayArguments = {**data.arguments, "system": data.system_prompt}  # type: ignore[typeddict-item]
        model = ModelAgent("openai", ctx.model, base_url=endpoint, api_key=secret)
        try:
            session = env.session(secrets=secrets_from(data.secrets), split=data.split, index=data.index)
            record = await play(session, _Intercepted(model, trace), **arguments)
        finally:
            await model.close()
        trace.state.reward, trace.state.rewards = record.reward, list(record.rewards)
        trace.state.outcome = record.outcome.type
        if record.reward is None:
            raise NoReward(record)
        return ProgramResult(exit_code=0, stdout="", stderr="")


class _Intercepted:
    """The model behind the interception, which refuses requests when a limit of the run is reached."""

    def __init__(self, model: ModelAgent, trace: vf.Trace) -> None:
        self._model, self._trace = model, trace

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        try:
            return await self._model.reply(conversation, tools)
        except ModelError:
            if self._trace.stop_condition is None:
                raise
            raise ContextExceeded(f"the run was stopped: {self._trace.stop_condition}") from None
