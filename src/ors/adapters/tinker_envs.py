"""Tinker: one episode, in messages and in tokens."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from tinker import EncodedTextChunk, ModelInput
from tinker_cookbook.renderers import Message, Renderer, get_text_content
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.types import InitialObservationOverflow, StepResult

from ors.adapters.common.chat import call_of, chat_message, tool_schemas
from ors.adapters.common.training import Account, MostFailed, NoReward, Recent, Training
from ors.client import AsyncSession, ToolInvocation
from ors.rollouts import AgentMessage, SteppedEpisode, SystemMessage


class TrainingFailed(BaseException):
    """Ends a training in which most episodes fail. The cookbook's strategies catch every `Exception`."""


class ORSMessageEnv(MessageEnv):
    """One episode. Close it in the end, also after the trainer has cut it off."""

    def __init__(
        self, session: Callable[[], AsyncSession], renderer: Renderer, training: Training, played: Recent
    ) -> None:
        self._session, self._renderer, self._training, self._played = session, renderer, training, played
        self._episode: SteppedEpisode | None = None
        self._history: list[Message] = []
        self.account, self.metrics = Account(training), dict[str, float]()

    async def initial_observation(self) -> list[Message]:
        """Opens the session.

        Raises:
            NoReward: it cannot be opened. TrainingFailed: nor can most others.
        """
        self._episode, first = await self._training.begin_async(self._session)
        if self._episode.record is not None:
            self._result(())
            raise NoReward(self._episode.record)
        system = "\n\n".join(each.text for each in first if isinstance(each, SystemMessage))
        tools = [tool["function"] for tool in tool_schemas(self._episode.tools)]
        described = [{"description": ""} | tool for tool in tools]
        self._history = list(self._renderer.create_conversation_prefix_with_tools(described, system))
        self._history += [chat_message(each) for each in first if not isinstance(each, SystemMessage)]
        return list(self._history)

    async def step(self, message: Message) -> MessageStepResult:
        """Plays one reply. All steps so far have paid what the episode counts as if it is cut off here.

        Raises:
            NoReward: the episode has ended, and is left out. TrainingFailed: most recent ones failed.
        """
        assert self._episode is not None, "initial_observation() comes first"
        new = await self._episode.step(
            AgentMessage(get_text_content(message), _calls(message, len(self._history)))
        )
        self._history += [message, *map(chat_message, new)]
        return self._result(new)

    async def cut(self) -> MessageStepResult | None:
        """Truncates the episode, unless it has ended. Raises what `step` does."""
        if self._episode is None or self._episode.record is not None:
            return None
        await self._episode.stop("the reply, or the conversation, is too long for the trainer")
        return self._result(())

    async def close(self) -> None:
        if self._episode is not None:
            await self._episode.stop("the trainer ended the episode")

    def _result(self, new: Sequence[Any]) -> MessageStepResult:
        assert self._episode is not None
        record = self._episode.record
        try:
            self.metrics = {} if record is None else self._played.count(record)
        except MostFailed as error:
            raise TrainingFailed(str(error)) from None
        logs = {} if record is None else {"outcome": record.outcome.type}
        reward = self.account.pay(new, record)
        return MessageStepResult(reward, record is not None, list(self._history), logs=logs)


class ORSTokenEnv(EnvFromMessageEnv):
    """The same in tokens. What the trainer cuts off is truncated; what it sampled is never rendered again."""

    _rendered: list[Any] | None = None
    """The conversation as the renderer writes it: calls of the model may look different there."""
    _shown = ModelInput.empty()
    _action: Sequence[int] = ()

    async def initial_observation(self) -> Any:
        found = await super().initial_observation()
        if isinstance(found, InitialObservationOverflow):
            await self.message_env.cut()
            return replace(found, reward=self.message_env.account.paid)
        return found

    async def step(self, action: Any, *, extra: Any = None) -> Any:
        self._action, before = action, self.message_env.account.paid
        try:
            result = await super().step(action, extra=extra)
        except RecursionError:  # renderers fail at a call that is nested this deeply
            result = StepResult(0.0, True, ModelInput.empty(), self._base_stop_condition)
        cut = await self.message_env.cut() if result.episode_done else None
        if cut is None:
            return result
        return replace(result, reward=self.message_env.account.paid - before, logs=cut.logs)

    async def _render_in_thread(self, messages: list[Message], **kwargs: Any) -> ModelInput:
        before, made = self._rendered, await super()._render_in_thread(messages, **kwargs)
        self._rendered = _flat(made)
        follows = None if before is None else _after_reply(self._rendered, before, self._base_stop_condition)
        if follows is not None:
            chunks = [*self._shown.chunks, EncodedTextChunk(tokens=list(self._action))]
            for is_text, run in groupby(follows, lambda each: isinstance(each, int)):
                each = list(run)
                chunks += [EncodedTextChunk(tokens=each)] if is_text else each
            made = ModelInput(chunks=chunks)
        self._shown = made
        return made


def _flat(shown: ModelInput) -> list[Any]:
    """The tokens of a prompt, and the images between them."""
    texts = [each.tokens if isinstance(each, EncodedTextChunk) else [each] for each in shown.chunks]
    return [token for text in texts for token in text]


def _after_reply(now: list[Any], before: list[Any], stops: Sequence[Any]) -> list[Any] | None:
    """What a prompt adds to the one before it and the reply. None if it does not continue that one."""
    added = now[len(before) :]
    ends = [place for place, token in enumerate(added) if token in stops]
    return added[ends[0] + 1 :] if ends and now[: len(before)] == before else None


def _calls(message: Message, turn: int) -> tuple[ToolInvocation, ...]:
    calls = [
        call_of(each.function.name, each.function.arguments, each.id or f"call_{turn}_{number}")
        for number, each in enumerate(message.get("tool_calls", ()))
    ]
    unread = [
        ToolInvocation("unread", {}, f"unread_{turn}_{number}", each.error, each.raw_text)
        for number, each in enumerate(message.get("unparsed_tool_calls", ()))
    ]
    return (*calls, *unread)
