"""What an episode answers over MCP. Rewards and metadata are never in it: the agent reads every byte."""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Protocol

from ors._json import dumps, loads
from ors._version import __version__
from ors.errors import ORSError
from ors.mcp.messages import HANDSHAKE, INTERNAL, INVALID_PARAMS, STATELESS, UNKNOWN_METHOD, Message
from ors.types import Blocks, JSONObject, ToolOutput, ToolSpec, described

OVER = "The episode is over. There is nothing more to do."
"""Follows the result of the call that finished the episode."""
LONGEST_NAME = 50
"""Providers take names of 64 characters, with the prefix of the client included, such as `mcp__server__`."""
NOTE_BYTES = 10_000
"""Room for the note in a result that is cut, and for the rest of the message."""
_GOOD_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_NAME}}}")
_TASK = {"name": "task", "description": "The task of this episode."}
_BLOCK_KEYS = ("type", "text", "data", "mimeType")
"""What a block of ours has in common with MCP's content, of every kind; an author's own fields stay here."""
_CACHED = {"ttlMs": 3_600_000, "cacheScope": "private"}


class Task(Protocol):
    """What an agent is told about its task."""

    async def list_tools(self, *, terminal: bool = False) -> list[ToolSpec]:
        """The tools of the task, with `terminal` also the `@terminal` one."""

    async def get_prompt(self) -> Blocks:
        """The prompt of the task."""


class Episode(Task, Protocol):
    """An episode, as far as MCP needs it. `AsyncSession` is one."""

    async def call_tool(self, tool_name: str, input: JSONObject) -> ToolOutput:
        """Calls a tool. Raises ORSError if it was refused or failed."""


class Answers:
    """Answers every request of MCP clients but calls."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._names: dict[str, str] = {}

    async def told(self, message: Message) -> bytes:
        """The answer to a request.

        Raises:
            Refused: it gets an error.
        """
        try:
            return message.result(await self._value(message))
        except ORSError as failure:
            raise message.refused(INTERNAL, str(failure)) from None

    async def tool(self, name: str, message: Message) -> str:
        """The episode's name of a tool that a client calls.

        Raises:
            Refused: there is no such tool.
        """
        if name not in self._names:
            names = [spec.name for spec in await self._task.list_tools(terminal=True)]
            self._names = {shown_name(each): each for each in names} | {each: each for each in names}
        if name not in self._names:
            raise message.refused(
                INVALID_PARAMS, f"Unknown tool {name!r}; the tools are listed by tools/list"
            )
        return self._names[name]

    async def _value(self, message: Message) -> dict[str, Any]:
        cached = _CACHED if message.stateless else {}
        match message.method:
            case "initialize":
                asked = message.params.get("protocolVersion")
                about = await self._about()
                return {"protocolVersion": asked if asked in HANDSHAKE else HANDSHAKE[-1], **about}
            case "server/discover":
                return {"supportedVersions": [STATELESS], **await self._about(), **cached}
            case "tools/list":
                tools = await self._task.list_tools(terminal=True)
                return {"tools": [_tool(spec) for spec in tools], **cached}
            case "prompts/list":
                return {"prompts": [_TASK], **cached}
            case "prompts/get":
                return await self._prompt(message)
            case "resources/list":
                return {"resources": [], **cached}
            case "resources/templates/list":
                return {"resourceTemplates": [], **cached}
            case "ping":
                return {}
            case _:
                raise message.refused(UNKNOWN_METHOD, f"Unknown method {message.method!r}")

    async def _about(self) -> dict[str, Any]:
        return {
            "capabilities": {"tools": {}, "prompts": {}},
            "serverInfo": {"name": "ors", "version": __version__},
            "instructions": described(await self._task.get_prompt()),
        }

    async def _prompt(self, message: Message) -> dict[str, Any]:
        if message.params.get("name") != _TASK["name"]:
            raise message.refused(INVALID_PARAMS, "Unknown prompt; the only one is 'task'")
        prompt = await self._task.get_prompt()
        messages = [{"role": "user", "content": _content(vars(block))} for block in prompt]
        return {"description": _TASK["description"], "messages": messages}


class Dialogue(Answers):
    """Answers the messages of MCP clients for one episode."""

    def __init__(self, episode: Episode) -> None:
        super().__init__(episode)
        self._episode = episode

    async def answer(self, message: Message) -> bytes | None:
        """The answer to a message; None to a notification.

        Raises:
            Refused: it gets an error, such as for an unknown method or tool.
        """
        if message.id is None:
            return None  # cancellations too: a call that runs is finished, as it is for other clients
        if message.method != "tools/call":
            return await self.told(message)
        name, given = asked(message)
        try:
            output = await self._episode.call_tool(await self.tool(name, message), given)
            return called(message, map(vars, output.blocks), output.finished)
        except ORSError as failure:
            return failed(message, str(failure))


def asked(message: Message) -> tuple[str, dict[str, Any]]:
    """The tool and the input of a `tools/call`.

    Raises:
        Refused: they are not valid.
    """
    name, given = message.params.get("name"), message.params.get("arguments")
    if type(name) is not str or not (given is None or type(given) is dict):
        raise message.refused(INVALID_PARAMS, "tools/call needs a name, a string, and arguments, an object")
    return name, given or {}


def called(message: Message, blocks: Iterable[Mapping[str, Any]], finished: bool) -> bytes:
    """The answer to a `tools/call` that has an output."""
    content = [_content(block) for block in blocks]
    if finished:
        content.append(_text(OVER))
    return message.result({"content": content, "isError": False})


def failed(message: Message, text: str) -> bytes:
    """The answer to a `tools/call` that was refused, or failed."""
    return message.result({"content": [_text(text)], "isError": True})


def shown_name(name: str) -> str:
    """The name under which clients see a tool: its own, unless they or their models would refuse that."""
    if _GOOD_NAME.fullmatch(name):
        return name
    mark = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[: LONGEST_NAME - len(mark) - 1]}_{mark}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    shown = shown_name(spec.name)
    title = {} if shown == spec.name else {"title": spec.name}
    schema = {"properties": {}, **(spec.input_schema or {}), "type": "object"}
    return {"name": shown, **title, "description": spec.description, "inputSchema": schema}


def _content(block: Mapping[str, Any]) -> dict[str, str]:
    return {key: block[key] for key in _BLOCK_KEYS if key in block}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def fitted(answer: bytes, most_bytes: int) -> bytes:
    """The answer to a call, without what is over `most_bytes`, and with a note that says so."""
    if len(answer) <= most_bytes:
        return answer
    value = loads(answer)
    content, kept, left = value["result"]["content"], [], most_bytes - NOTE_BYTES
    ending = [content.pop()] if content[-1] == _text(OVER) else []
    for block in content:
        size = len(dumps(block))
        if size > left and block["type"] == "text":
            kept.append(_text(block["text"][: len(block["text"]) * max(left, 0) // size]))
            break
        if size <= left:
            kept.append(block)
            left -= size + 1
    note = f"[Cut: the result has {len(answer)} bytes; if a call takes over a second, only 1 MB can be sent]"
    value["result"]["content"] = [*kept, _text(note), *ending]
    return dumps(value)
