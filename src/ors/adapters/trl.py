"""TRL: environments for `GRPOTrainer(environment_factory=…, reward_funcs=…)`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from ors.adapters.common.chat import Content, content_of
from ors.adapters.common.methods import tool_method
from ors.adapters.common.secrets import secrets_from
from ors.client import Environment, ToolCallError, ToolInvocation, convert_tools
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    PlayArguments,
    SteppedEpisodeSync,
    ToolMessage,
    UserMessage,
)

_ENDED = "The episode has ended."


class TRLEnvironments:
    """Makes the environments of a trainer, and rewards their episodes: `environment_factory` and a reward.

    Tools are those that all tasks of `env` share. All episodes share the client of `env`. `secrets` names
    those that the environment gets, from the variables of the process.

    Raises:
        ValueError: a tool cannot be a Python method, or a secret is missing.
    """

    def __init__(
        self, env: Environment, *, secrets: Iterable[str] = (), **arguments: Unpack[PlayArguments]
    ) -> None:
        tools = convert_tools(env.list_tools(), "openai-chat")
        methods = {tool["function"]["name"]: tool_method(**tool["function"]) for tool in tools}
        self._class = type(f"{env.name}_environment", (_Rollout,), methods)
        self._env = env
        self._secrets = secrets_from(secrets)
        self._arguments = arguments

    def __call__(self) -> "_Rollout":
        """A new environment, which plays one episode after the other."""
        made: _Rollout = self._class(self._env, self._secrets, self._arguments)
        return made

    def rows(self, split: str, indices: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """The tasks of a split as rows of a dataset: `Dataset.from_list(environments.rows("train"))`."""
        system = self._arguments.get("system")
        prompt = [{"role": "system", "content": system}] if system else []
        prompt.append({"role": "user", "content": ""})  # the trainer adds the prompt of the task
        chosen = range(self._env.num_tasks(split)) if indices is None else indices
        return [{"prompt": prompt, "split": split, "index": index} for index in chosen]

    def reward(
        self, environments: Sequence["_Rollout"], completions: Sequence[Any], **_: Any
    ) -> list[float | None]:
        """Ends all episodes; returns their rewards. The trainer leaves out those that are None."""
        return [env._end(said).reward for env, said in zip(environments, completions, strict=True)]


class _Rollout:
    """The environment of one rollout at a time. Its public methods are the tools, and `reset`."""

    def __init__(self, env: Environment, secrets: Mapping[str, str], arguments: PlayArguments) -> None:
        self._env = env
        self._secrets = secrets
        self._arguments = arguments
        self._episode: SteppedEpisodeSync | None = None

    def reset(self, *, split: str, index: int, **_: Any) -> Content:
        """Begins an episode; returns the prompt. If the task cannot be opened, the episode has no reward."""
        if self._episode is not None:
            self._episode.stop("the trainer began another episode")
        session = self._env.session(secrets=self._secrets, split=split, index=index)
        self._episode = SteppedEpisodeSync(session, **self._arguments)
        first = self._episode.start()
        return content_of([block for each in first if isinstance(each, UserMessage) for block in each.blocks])

    def _call(self, name: str, given: dict[str, Any]) -> Content:
        if self._episode is None or self._episode.record is not None:
            raise ToolCallError(_ENDED)
        new = self._episode.step(AgentMessage(calls=(ToolInvocation(name, given),)))
        result = next((each for each in new if isinstance(each, ToolMessage)), None)
        if result is None:  # the episode failed, and has no reward
            raise ToolCallError(_ENDED)
        content = content_of(result.blocks)
        if not result.ok:
            raise ToolCallError(str(content))
        return content

    def _end(self, completion: Sequence[Mapping[str, Any]]) -> EpisodeRecord:
        if self._episode is None:
            raise RuntimeError("the environment was not reset")
        last = completion[-1] if completion else {}
        if self._episode.record is None and last.get("role") == "assistant" and not last.get("tool_calls"):
            self._episode.step(AgentMessage(text=str(last.get("content") or "")))
        return self._episode.stop("the trainer ended the episode")
