"""HumanAgent: a person at the terminal; and the shell that `ors play` shares with it."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, assert_never

from ors.client import ToolInvocation
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, UserMessage
from ors.rollouts.episodes.episode import Conversation
from ors.schemas import example, find_tool, is_open, typed_call, unquoted, usage
from ors.types import ToolSpec, described

HOW = (
    'Type a tool and its input, for example: {example}. Put text of several lines between """ and """. '
    "Other commands: help, /tools, /prompt, quit (or Ctrl-D)."
)
SPEECH = {
    "say": " To reply without a tool: say TEXT.",
    "plain": " Text that does not begin with a tool's name is your last message.",
}
COMMANDS = ("/tools", "/prompt", "/help", "/quit", "/exit", "help", "quit", "exit")
"""Those without a slash are commands unless a tool has that name."""


@dataclass
class Shell:
    """What a person may type: calls, a message, and commands."""

    tools: Sequence[ToolSpec]
    show: Callable[[str], object]
    """Prints lines."""
    show_prompt: Callable[[], object]
    speech: Literal["say", "plain"] | None = None
    """How a message without a call is typed; None where there is none."""

    def reply(self, line: str, id: str | None = None) -> AgentMessage | None:
        """The reply that a line is; None if it is a command or wrong, which is answered here.

        Raises:
            EOFError: the person leaves.
        """
        known = any(tool.name == line for tool in self.tools)
        match line.removeprefix("/") if line in COMMANDS and not known else None:
            case "quit" | "exit":
                raise EOFError
            case "prompt":
                self.show_prompt()
            case "tools":
                self.show_tools()
            case "help":
                self.show_help()
            case _:
                try:
                    return self._understood(line, id) if line else None
                except ValueError as error:
                    self.show(str(error))
        return None

    def show_help(self) -> None:
        self.show_tools()
        more = SPEECH[self.speech] if self.speech else ""
        self.show("\n" + HOW.format(example=example(self.tools[0]) if self.tools else "submit") + more)

    def show_tools(self) -> None:
        for tool in self.tools:
            self.show(f"  {usage(tool)}  {' '.join(tool.description.split())}".rstrip())

    def _understood(self, line: str, id: str | None) -> AgentMessage:
        name, rest = (*line.split(maxsplit=1), "")[:2]
        if not any(tool.name == name for tool in self.tools):
            if self.speech == "say" and name == "say":
                return AgentMessage(unquoted(rest.strip()))
            if self.speech == "plain" and not line.startswith("/"):
                return AgentMessage(unquoted(line))
        given = typed_call(find_tool(self.tools, name), rest.strip())
        return AgentMessage(calls=(ToolInvocation(name, given, id),))


class HumanAgent:
    """A person at the terminal. Episodes that are played at the same time take turns."""

    def __init__(self) -> None:
        self._terminal = asyncio.Lock()

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """What the person typed; an empty message if they leave."""
        messages = conversation.messages
        turn = sum(message.role == "assistant" for message in messages)
        prompt = [message for message in messages if isinstance(message, UserMessage)][:1]
        shell = Shell(tools, _show, lambda: _show_all(prompt), "say")
        async with self._terminal:
            task = conversation.task
            index = "" if task.index is None else task.index
            _show(f"── {task.environment} {task.split or ''} {index}".rstrip())
            unseen = list(takewhile(lambda each: each.role != "assistant", reversed(messages)))
            _show_all(unseen[::-1])
            if not turn:
                shell.show_help()
            while True:
                try:
                    reply = shell.reply(await _typed_in_thread(), f"call_{turn + 1}")
                except EOFError:
                    return AgentMessage()
                if reply is not None:
                    return reply


def _show(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _show_all(messages: Sequence[Message]) -> None:
    for message in messages:
        for line in _told(message):
            _show(line)


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


async def _typed_in_thread() -> str:
    # A daemon, unlike the threads of asyncio: an unanswered question must not hold up the end of the process.
    answer = Future[str]()
    answer.set_running_or_notify_cancel()

    def ask() -> None:
        try:
            answer.set_result(typed_line(read_line))
        except (EOFError, OSError):
            answer.set_exception(EOFError())

    threading.Thread(target=ask, name="ors-human", daemon=True).start()
    return await asyncio.wrap_future(answer)
