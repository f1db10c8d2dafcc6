"""verifiers: a toolset, for the harnesses that have a loop of their own."""

import signal
from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

from ors.adapters.chat import text_of, tool_method, tool_schemas
from ors.adapters.training import OPTIONS, Training, secrets_from
from ors.adapters.verifiers import ORSData, ORSState, ORSTask, ORSTaskset
from ors.client import ORS, AsyncORS, ToolInvocation
from ors.rollouts import AgentMessage, ToolMessage

__all__ = ["ORSToolTaskset", "ORSToolset"]


class ORSToolset(vf.Toolset[vf.ToolsetConfig, ORSState]):
    """The tools of one episode: a server that verifiers starts for each rollout. Images are named in text."""

    TOOL_PREFIX = None

    async def setup_task(self, task: ORSData) -> None:
        """Opens the session. If that fails, the rollout ends before the model is asked."""
        # verifiers stops this process by SIGTERM. uvicorn sends it again when it has stopped serving, which
        # by default would end the process before the session is closed.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        client = await self._exit_stack.enter_async_context(AsyncORS(task.base_url, options=OPTIONS))
        env, secrets = client.environment(task.environment), secrets_from(task.secrets)
        training = Training.of(task.arguments)  # type: ignore[arg-type]
        self._episode, _ = await training.begin_async(
            lambda: env.session(secrets=secrets, split=task.split, index=task.index)
        )
        self._exit_stack.push_async_callback(self._episode.stop, "the harness ended the episode")
        if self._episode.record is not None:
            self.state.note(self._episode.record)
        await self._push_state(b"")

    def register(self, mcp: Any) -> None:
        """Adds the tools of the task."""
        for tool in tool_schemas(self._episode.tools):
            mcp.add_tool(self._with_state(tool_method(**tool["function"]).__get__(self)))

    async def _call(self, name: str, given: dict[str, Any]) -> str:
        if self._episode.record is not None:
            raise ValueError("The episode has ended.")
        # MCP's server fills in what the model left out, with None where there is no default.
        made = {key: value for key, value in given.items() if value is not None}
        new = await self._episode.step(AgentMessage(calls=(ToolInvocation(name, made),)))
        result = next((each for each in new if isinstance(each, ToolMessage)), None)
        self.state.rewards += [] if result is None else [result.reward]
        self.state.components += [] if result is None else [result.components]
        if self._episode.record is not None:
            self.state.note(self._episode.record)
        if result is None:
            return "The environment failed."
        if not result.ok:
            raise ValueError(text_of(result.blocks))
        return text_of(result.blocks)


class ORSToolTask(ORSTask, vf.Task[ORSData, ORSState]):
    """A task whose tools any harness calls."""

    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        """One server for each rollout, since it holds a session."""
        return [ORSToolset(vf.ToolsetConfig())]

    @vf.stop
    async def episode_ended(self, trace: vf.Trace) -> bool:
        """Whether `finished`, a limit or a failure has ended the episode."""
        return trace.state.result is not None


class ORSToolTaskset(ORSTaskset):
    """The tasks of a split, for any harness. Each prompt is read in a session of its own, which is closed."""

    @classmethod
    def task_type(cls) -> type[ORSToolTask]:
        return ORSToolTask

    def load(self) -> Iterator[ORSToolTask]:
        """All tasks of the split.

        Raises:
            ValueError: the configuration does not fit, or the environment scores the last message.
        """
        if self.config.nudge is not None:
            raise ValueError("The harness runs the loop and cannot send a nudge: use ORSHarness")
        with ORS(self.config.base_url or "http://127.0.0.1") as client:
            for task in super().load():
                data = task.data
                env = client.environment(data.environment)
                secrets = secrets_from(data.secrets)
                with env.session(secrets=secrets, split=data.split, index=data.index) as session:
                    if session.terminal_tool() is not None:
                        raise ValueError(f"{data.environment} has a terminal tool: use ORSHarness")
                    prompt = text_of(session.get_prompt())
                yield ORSToolTask(data.model_copy(update={"prompt": prompt}), self.config.task)


if __name__ == "__main__":
    ORSToolset.run()
