"""What an episode answers over MCP. Rewards and metadata are never in it: the agent reads every byte."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

from ors._json import dumps, loads
from ors._protocol import one_line
from ors._protocol.sse import PING
from ors._version import __version__
from ors.errors import ORSError
from ors.mcp.messages import HANDSHAKE, INTERNAL, INVALID_PARAMS, STATELESS, UNKNOWN_METHOD, Message
from ors.types import Blocks, ToolSpec, described

OVER = "The episode is over. There is nothing more to do."
"""Follows the result of the call that finished the episode."""
LONGEST_NAME = 50
"""Providers take names of 64 characters, with the prefix of the client included, such as `mcp__server__`."""
AT_ONCE_SECONDS = 1.0
"""A call that is done by then is answered as JSON, of any size; otherwise as a stream of events."""
PROGRESS_SECONDS = 5.0
"""How often an open stream gets a sign of life. At this pace, agents wait for calls of minutes."""
EVENT_BYTES = 1_000_000
"""Longest message in an event: the client of mcp 2.3.0 refuses events over 1,048,576 bytes."""
_BLOCK_KEYS = ("type", "text", "data", "mimeType")  # an author's own fields stay here
_TASK = {"name": "task", "description": "The task of this episode."}
_SERVER = {
    "capabilities": {"tools": {}, "prompts": {}},
    "serverInfo": {"name": "ors", "version": __version__},
}

Tools = Callable[[], Awaitable[list[ToolSpec]]]
"""The tools of an episode, with the `@terminal` one."""
Prompt = Callable[[], Awaitable[Blocks]]


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
            version = version if version in HANDSHAKE else HANDSHAKE[-1]
            return {"protocolVersion": version, "instructions": described(await prompt()), **_SERVER}
        case "server/discover":
            return {
                "supportedVersions": [STATELESS], "instructions": described(await prompt()), **_SERVER,
            }  # fmt: skip
        case "tools/list":
            return {"tools": [_tool(spec) for spec in await tools()]}
        case "prompts/list":
            return {"prompts": [_TASK]}
        case "prompts/get":
            if message.params.get("name") != _TASK["name"]:
                raise message.refused(INVALID_PARAMS, "Unknown prompt; the only one is 'task'")
            content = [_content(vars(each)) for each in await prompt()]
            return {"messages": [{"role": "user", "content": each} for each in content]}
        case "resources/list":
            return {"resources": []}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "ping":
            return {}
        case _:
            raise message.refused(UNKNOWN_METHOD, f"Unknown method {message.method!r}")


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
    return {key: block[key] for key in _BLOCK_KEYS if key in block}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def event(message: bytes | None) -> bytes:
    """A message as an event; a comment if there is none. An answer that is too long for one is cut."""
    if message is None:
        return PING
    if len(message) > EVENT_BYTES:
        message = _cut(message)
    return b"event: message\ndata: %b\n\n" % one_line(message)


def _cut(answer: bytes) -> bytes:
    """The answer to a call without what is too much for an event, and with a note that says so."""
    value, kept = loads(answer), list[dict[str, str]]()
    if "result" not in value:
        return answer  # an error
    content, left = value["result"]["content"], EVENT_BYTES - 10_000  # for the rest of the message
    over = content[-1] == _text(OVER)
    for block in content[: len(content) - over]:
        if left < 100:
            break
        if len(dumps(block)) > left:
            block = _text(block.get("text", "[image left out]"))
        while (size := len(dumps(block))) > left:  # again if what was cut off took less than the rest
            block = _text(block["text"][: len(block["text"]) * left // size])
        kept.append(block)
        left -= len(dumps(block)) + 1
    kept.append(_text(f"[Cut: only 1 MB of {len(answer)} bytes can be sent if a call takes over a second]"))
    value["result"]["content"] = kept + content[-1:] * over
    return dumps(value)
