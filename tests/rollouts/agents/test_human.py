"""A person at the terminal: in a process of its own, and at a pipe."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import pytest

from ors.client import ToolInvocation
from ors.rollouts import AgentMessage, Conversation, TaskRef, ToolMessage, UserMessage
from ors.rollouts.agents import HumanAgent
from ors.types import ImageBlock, TextBlock, ToolSpec

MARK = ToolSpec(
    name="mark",
    description="Marks a row",
    input_schema={
        "type": "object",
        "properties": {"row": {"type": "integer"}, "text": {"type": "string"}, "more": {}},
    },
)
TOOLS = [MARK, ToolSpec(name="wait", description="", input_schema=None)]


class Terminal:
    """Types lines into the standard input, and reads what was printed."""

    def __init__(self, keyboard: BinaryIO, capsys: pytest.CaptureFixture[str]) -> None:
        self.keyboard, self._capsys = keyboard, capsys

    def type(self, *lines: str) -> None:
        self.keyboard.write("".join(f"{line}\n" for line in lines).encode())

    def printed(self) -> str:
        return self._capsys.readouterr().out


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    theirs, ours = os.pipe()
    with open(theirs) as stdin, open(ours, "wb", buffering=0) as keyboard:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield Terminal(keyboard, capsys)


def episode() -> Conversation:
    prompt = UserMessage([TextBlock(text="Mark row 3."), ImageBlock(data="", mimeType="image/png")])
    return Conversation(TaskRef("board", "train", 5), messages=[prompt])


async def typed(terminal: Terminal, *lines: str) -> tuple[AgentMessage, str]:
    terminal.type(*lines)
    reply = await HumanAgent().reply(episode(), TOOLS)
    return reply, terminal.printed()


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("mark", {}),
        ("mark row=3 text=4", {"row": 3, "text": "4"}),
        ('mark text="two words" more=[1,2]', {"text": "two words", "more": [1, 2]}),
        ('mark {"row": 3, "text": "x"}', {"row": 3, "text": "x"}),
        ("  mark more=word  ", {"more": "word"}),
        ('mark text="""\none\n two"""', {"text": "one\n two"}),
    ],
)
async def test_a_line_is_a_call(terminal: Terminal, line: str, given: dict[str, Any]) -> None:
    reply, _ = await typed(terminal, line)
    assert reply == AgentMessage(calls=(ToolInvocation("mark", given, "call_1"),))


async def test_a_message_and_the_end_of_the_input_are_replies_without_calls(terminal: Terminal) -> None:
    assert (await typed(terminal, "say I am done."))[0] == AgentMessage("I am done.")
    assert (await typed(terminal, "", "quit"))[0] == AgentMessage()
    terminal.keyboard.close()
    assert (await HumanAgent().reply(episode(), TOOLS)) == AgentMessage()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("mrk row=3", "There is no tool 'mrk'."),
        ("help", "Other commands: help"),
        ("/tools", "> /tools\n  mark("),
        ("/prompt", "> /prompt\nMark row 3.\n[image of type image/png]\n"),
        ("mark row", "'row' is not key=value"),
        ("mark rwo=3", "mark has no parameter 'rwo'. Parameters: row, text, more"),
        ("mark row=three", "mark: row must be integer, not 'three'"),
        ("mark {row: 3}", "Not valid JSON"),
        ('mark text="open', "The quotes do not match: No closing quotation"),
    ],
)
async def test_a_line_that_is_neither_is_asked_for_again(terminal: Terminal, line: str, told: str) -> None:
    reply, text = await typed(terminal, line, "wait")
    assert told in text
    assert [call.name for call in reply.calls] == ["wait"]


async def test_each_turn_shows_what_is_new(terminal: Terminal) -> None:
    terminal.type("mark row=1", "wait")
    agent = HumanAgent()
    talk = episode()
    talk.messages.append(await agent.reply(talk, TOOLS))
    text = terminal.printed()
    assert "board train 5\nMark row 3.\n[image of type image/png]\n  mark(row: integer (optional), " in text
    assert "more: any (optional))  Marks a row\n  wait()" in text
    talk.messages += [
        ToolMessage("call_1", "mark", [TextBlock(text="Wrong row.")], reward=0.5),
        ToolMessage("call_2", "wait", [TextBlock(text="No.")], ok=False),
    ]
    reply = await agent.reply(talk, TOOLS)
    shown = ["mark: reward 0.5", "Wrong row.", "wait: refused", "No.", "> wait"]
    assert terminal.printed().splitlines()[1:] == shown
    assert reply.calls[0].id == "call_2"


async def test_episodes_take_turns_at_the_terminal(terminal: Terminal) -> None:
    agent = HumanAgent()
    playing = asyncio.gather(*(agent.reply(episode(), TOOLS) for _ in range(2)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert terminal.printed().count("── board") == 1
    terminal.type("wait", "say bye")
    assert [bool(reply.calls) for reply in await playing] == [True, False]
    assert terminal.printed().count("── board") == 1


PROGRAM = """
import asyncio
from ors.rollouts import Conversation, TaskRef
from ors.rollouts.agents import HumanAgent
from ors.types import ToolSpec

async def main():
    agent = HumanAgent()
    talk = Conversation(TaskRef("board"))
    tools = [ToolSpec(name="wait", description="", input_schema=None)]
    print(await agent.reply(talk, tools), flush=True)
    asking = asyncio.create_task(agent.reply(talk, tools))
    while not agent._terminal.locked():
        await asyncio.sleep(0)
    asking.cancel()
    print(await asyncio.gather(asking, return_exceptions=True))

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_question_without_an_answer_does_not_hold_up_the_end_of_the_process(kind: str) -> None:
    ours, theirs = os.pipe()[::-1] if kind == "pipe" else os.openpty()
    output = subprocess.PIPE if kind == "pipe" else theirs
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=theirs, stdout=output) as process:
        os.write(ours, b"wait\n")
        assert process.wait(30) == 0  # while its input is still open
        written = os.read(ours if process.stdout is None else process.stdout.fileno(), 10_000).decode()
    for each in (ours, theirs):
        os.close(each)
    assert "name='wait'" in written
    assert "CancelledError" in written


def test_the_input_of_a_process_may_end() -> None:
    program = PROGRAM.replace("print(await agent.reply(talk, tools), flush=True)", "", 1)
    program = program.replace("asking.cancel()", "")
    done = subprocess.run(
        [sys.executable, "-c", program], input="", capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "AgentMessage(text=''" in done.stdout
