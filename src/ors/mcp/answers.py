"""What an episode answers over MCP. Rewards and metadata are never in it: the agent reads every byte."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
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
_NOTE_BYTES = 10_000  # room for the note in a result that is cut, and for the rest of the message
_BLOCK_KEYS = ("type", "text", "data", "mimeType")  # an author's own fields stay here
_TASK = {"name": "task", "description": "The task of this episode."}

Tools = Callable[[], Awaitable[list[ToolSpec]]]
Prompt = Callable[[], Awaitable[Blocks]]


class Episode(Protocol):
    """An episode, as far as MCP needs it. `AsyncSession` is one."""

    async def list_tools(self, *, terminal: bool = False) -> list[ToolSpec]:
        """The tools of the task, with `terminal` also the `@terminal` one."""

    async def get_prompt(self) -> Blocks:
        """The prompt of the task."""

    async def call_tool(self, tool_name: str, input: JSONObject) -> ToolOutput:
        """Calls a tool. Raises ORSError if it was refused or failed."""


class Dialogue:
    """Answers the messages of MCP clients for one episode."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._names: dict[str, str] = {}

    async def answer(self, message: Message) -> bytes | None:
        """The answer to a message; None to a notification.

        Raises:
            Refused: it gets an error, such as for an unknown method or tool.
        """
        if message.id is None:
            return None  # cancellations too: a call that runs is finished, as it is for other clients
        if message.method != "tools/call":
            return await told(message, self._tools, self._episode.get_prompt)
        name, given = asked(message)
        try:
            if name not in self._names:
                self._names[name] = await tool_named(message, self._tools)
            output = await self._episode.call_tool(self._names[name], given)
        except ORSError as failure:
            return failed(message, str(failure))
        return called(message, map(vars, output.blocks), output.finished)

    async def _tools(self) -> list[ToolSpec]:
        return await self._episode.list_tools(terminal=True)


async def told(message: Message, tools: Tools, prompt: Prompt) -> bytes:
    """The answer to a request that is no call.

    Raises:
        Refused: it gets an error.
    """
    try:
        value = await _value(message, tools, prompt)
    except ORSError as failure:
        raise message.refused(INTERNAL, str(failure)) from None
    if message.stateless and "messages" not in value:
        value |= {"ttlMs": 3_600_000, "cacheScope": "private"}
    return message.result(value)


async def _value(message: Message, tools: Tools, prompt: Prompt) -> dict[str, Any]:
    match message.method:
        case "initialize":
            version = message.params.get("protocolVersion")
            return {
                "protocolVersion": version if version in HANDSHAKE else HANDSHAKE[-1],
                **await _about(prompt),
            }
        case "server/discover":
            return {"supportedVersions": [STATELESS], **await _about(prompt)}
        case "tools/list":
            return {"tools": [_tool(spec) for spec in await tools()]}
        case "prompts/list":
            return {"prompts": [_TASK]}
        case "prompts/get":
            if message.params.get("name") != _TASK["name"]:
                raise message.refused(INVALID_PARAMS, "Unknown prompt; the only one is 'task'")
            return {
                "messages": [{"role": "user", "content": _content(vars(each))} for each in await prompt()]
            }
        case "resources/list":
            return {"resources": []}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "ping":
            return {}
        case _:
            raise message.refused(UNKNOWN_METHOD, f"Unknown method {message.method!r}")


async def _about(prompt: Prompt) -> dict[str, Any]:
    return {
        "capabilities": {"tools": {}, "prompts": {}},
        "serverInfo": {"name": "ors", "version": __version__},
        "instructions": described(await prompt()),
    }


def asked(message: Message) -> tuple[str, dict[str, Any]]:
    """The tool and the input of a `tools/call`. Raises Refused if they are not valid."""
    name, given = message.params.get("name"), message.params.get("arguments")
    if type(name) is not str or not (given is None or type(given) is dict):
        raise message.refused(INVALID_PARAMS, "tools/call needs a name, a string, and arguments, an object")
    return name, given or {}


async def tool_named(message: Message, tools: Tools) -> str:
    """The episode's name of the tool that a client calls. Raises Refused if there is none."""
    name = message.params["name"]
    for spec in await tools():
        if name in (spec.name, shown_name(spec.name)):
            return spec.name
    raise message.refused(INVALID_PARAMS, f"Unknown tool {name!r}; the tools are listed by tools/list")


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
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if plain == name and len(name) <= LONGEST_NAME:
        return name
    mark = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{plain[: LONGEST_NAME - len(mark) - 1]}_{mark}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    shown = shown_name(spec.name)
    title = {} if shown == spec.name else {"title": spec.name}
    schema = {"properties": {}, **(spec.input_schema or {}), "type": "object"}
    return {"name": shown, **title, "description": spec.description, "inputSchema": schema}


def _content(block: Mapping[str, Any]) -> dict[str, str]:
    if block["type"] == "text":
        return _text(block["text"])
    return {key: block[key] for key in _BLOCK_KEYS if key in block}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def fitted(answer: bytes, most_bytes: int) -> bytes:
    """The answer to a call, without what is over `most_bytes`, and with a note that says so."""
    if len(answer) <= most_bytes:
        return answer
    value = loads(answer)
    content, kept, left = value["result"]["content"], [], most_bytes - _NOTE_BYTES
    ending = [content.pop()] if content[-1] == _text(OVER) else []
    for block in content:
        size = len(dumps(block)) + 1
        if size > left and block["type"] == "text":
            kept.append(_text(block["text"][: len(block["text"]) * left // size]))
            break
        if size <= left:
            kept.append(block)
            left -= size
    note = f"[Cut: the result has {len(answer)} bytes; if a call takes over a second, only 1 MB can be sent]"
    value["result"]["content"] = [*kept, _text(note), *ending]
    return dumps(value)
