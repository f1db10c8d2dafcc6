"""HumanAgent: a person at the terminal."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import takewhile
from typing import assert_never

from ors.client import ToolInvocation
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, UserMessage
from ors.rollouts.episodes.episode import Conversation
from ors.schemas import find_tool, is_open, typed_call, unquoted, usage
from ors.types import ToolSpec, described

HELP = 'Type a tool with its input (NAME key=value, or NAME {"key": value}), or: say TEXT'


class HumanAgent:
    """A person at the terminal. Episodes that are played at the same time take turns."""

    def __init__(
        self, read: Callable[[str], str] | None = None, write: Callable[[str], object] | None = None
    ) -> None:
        self._read = read or read_line
        self._write = write or sys.stdout.write
        self._terminal = asyncio.Lock()

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """The words that the person typed; an empty message at the end of the input."""
        turn = sum(message.role == "assistant" for message in conversation.messages)
        async with self._terminal:
            for line in _news(conversation, tools, turn):
                self._write(f"{line}\n")
            while True:
                try:
                    return _understood(await _in_thread(self._read), tools, f"call_{turn + 1}")
                except EOFError:
                    return AgentMessage()
                except ValueError as error:
                    self._write(f"{error}\n")


def _news(conversation: Conversation, tools: Sequence[ToolSpec], turn: int) -> list[str]:
    task = conversation.task
    lines = [f"── {task.environment} {task.split or ''} {'' if task.index is None else task.index}".rstrip()]
    unseen = list(takewhile(lambda each: each.role != "assistant", reversed(conversation.messages)))
    for message in reversed(unseen):
        lines += _told(message)
    if not turn:
        lines += [*(f"  {usage(tool)}  {tool.description}".rstrip() for tool in tools), HELP]
    return lines


def _told(message: Message) -> list[str]:
    match message:
        case SystemMessage() | AgentMessage():
            return [message.text]
        case UserMessage():
            return [described(message.blocks)]
        case ToolMessage():
            notes = [] if message.ok else ["refused"]
            notes += [] if message.reward is None else [f"reward {message.reward:g}"]
            notes += [f"{name} {value:g}" for name, value in message.components.items()]
            return [f"{message.name}: {', '.join(notes)}".rstrip(": "), described(message.blocks)]
        case _:
            assert_never(message)


def _understood(line: str, tools: Sequence[ToolSpec], id: str) -> AgentMessage:
    name, _, rest = line.partition(" ")
    if name == "say" and not any(tool.name == name for tool in tools):
        return AgentMessage(text=unquoted(rest.strip()))
    if not name:
        raise ValueError(HELP)
    return AgentMessage(calls=(ToolInvocation(name, typed_call(find_tool(tools, name), rest.strip()), id),))


def typed_line(read: Callable[[str], str]) -> str:
    """A typed call, which may have several lines."""
    line = read("> ")
    while is_open(line):
        try:
            line = f"{line}\n{read('… ')}"
        except EOFError:
            break
    return line.strip()


def read_line(prompt: str, *, err: bool = False) -> str:
    """A line of the standard input, which is echoed unless it is typed. `err` prompts on standard error."""
    if sys.stdin.isatty() and sys.stdout.isatty() and not err:
        return input(prompt)
    # Byte by byte from the file: Python crashes at its end if a thread waits in the buffer of sys.stdin.
    shown = sys.stderr if err else sys.stdout
    shown.write(prompt)
    shown.flush()
    line = b""
    while (byte := os.read(sys.stdin.fileno(), 1)) not in (b"", b"\n"):
        line += byte
    if not line and not byte:
        raise EOFError
    text = line.decode(errors="replace")
    if not sys.stdin.isatty():
        shown.write(f"{text}\n")
    return text


async def _in_thread(read: Callable[[str], str]) -> str:
    # A daemon, unlike the threads of asyncio: an unanswered question must not hold up the end of the process.
    answer = Future[str]()
    answer.set_running_or_notify_cancel()

    def ask() -> None:
        try:
            answer.set_result(typed_line(read))
        except (EOFError, OSError):
            answer.set_exception(EOFError())

    threading.Thread(target=ask, name="ors-human", daemon=True).start()
    return await asyncio.wrap_future(answer)
