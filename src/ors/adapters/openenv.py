"""OpenEnv: resource sessions, for `AsyncGRPOTrainer` of TRL and other users of OpenEnv's harness."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import ResourceSession, ResourceSessionFactory, ToolResult, VerifyResult

from ors.adapters.chat import chat_message, last_reply, text_of, tool_schemas
from ors.adapters.training import (
    NoReward,
    Training,
    TrainingArguments,
    Watch,
    secrets_from,
    shared_sync_client,
    told,
)
from ors.client import Session, ToolInvocation
from ors.rollouts import AgentMessage, ToolMessage


class ORSResourceSession(ResourceSession):
    """One episode. Images are named in text, since the harness passes on nothing else.

    Raises:
        NoReward: it cannot be opened.
    """

    def __init__(self, session: Callable[[], Session], training: Training, watch: Watch) -> None:
        self._watch = watch
        self._episode, self._first = training.begin(session)
        if self._episode.record is not None:
            watch.count([self._episode.record])
            raise NoReward(self._episode.record)

    def initial_messages(self) -> list[dict[str, Any]]:
        return [chat_message(each, text_of) for each in self._first]

    def list_tools(self) -> list[Tool]:
        functions = (tool["function"] for tool in tool_schemas(self._episode.tools))
        return [
            Tool(name=each["name"], description=each.get("description", ""), input_schema=each["parameters"])
            for each in functions
        ]

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Calls a tool; `done` if that ended the episode."""
        if self._episode.record is not None:
            return ToolResult(done=True, error="the episode has ended")
        new = self._episode.step(AgentMessage(calls=(ToolInvocation(name, arguments),)))
        done = self._episode.record is not None
        result = next((each for each in new if isinstance(each, ToolMessage)), None)
        if result is None:  # the episode failed, and has no reward
            return ToolResult(done=done, error="the environment failed")
        text = text_of(result.blocks)
        metadata = {"reward": result.reward, **(result.metadata or {})}
        return ToolResult(text, done, metadata, error=None if result.ok else text)

    def verify(self, transcript: list[dict[str, Any]], final_state: Any = None) -> VerifyResult:
        """Ends the episode; its reward is None if the trainer must leave it out."""
        reply = last_reply(transcript)  # a call in it could not be read
        if self._episode.record is None and reply is not None:
            self._episode.step(reply)
        record = self._episode.stop("the harness ended the episode")
        self._watch.count([record])
        ended = {"outcome": record.outcome.type, "told": told(record.outcome)}
        return VerifyResult(record.reward, done=True, metrics=dict(record.components), artifacts=ended)

    def close(self) -> None:
        self._episode.stop("the harness ended the episode")


class ORSSessionFactory(ResourceSessionFactory):
    """Makes the sessions of a split's tasks, which share a client.

    The task is chosen by the seed, which TRL makes the number of the group: all rollouts of a group play the
    same task, and the groups go through `indices`, or through the whole split. `secrets` names those that the
    environment gets, from the variables of the process.
    """

    def __init__(
        self,
        base_url: str,
        environment: str,
        split: str,
        indices: Sequence[int] | None = None,
        *,
        secrets: Sequence[str] = (),
        **arguments: Unpack[TrainingArguments],
    ) -> None:
        self._training, self._watch = Training.of(arguments), Watch()
        if arguments.get("nudge") is not None:
            raise ValueError(
                "The harness ends at the first reply without a tool call: it cannot send a nudge"
            )
        self._env = shared_sync_client(base_url).environment(environment)
        self._split, self._secrets = split, secrets_from(secrets)
        self._indices = range(self._env.num_tasks(split)) if indices is None else indices

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> ORSResourceSession:
        """Opens a session of the task that the seed chooses. Raises `NoReward` if it cannot be opened."""
        index = self._indices[(seed or 0) % len(self._indices)]
        session = partial(self._env.session, secrets=self._secrets, split=self._split, index=index)
        return ORSResourceSession(session, self._training, self._watch)
