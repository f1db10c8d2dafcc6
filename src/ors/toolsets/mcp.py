"""MCPToolset: the tools of an MCP server as tools of an environment."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ors._authoring.tools import LiveTools, ToolsLost
from ors._json import dumps
from ors._version import __version__
from ors.errors import InvalidEnvironment, ToolError, TransportError
from ors.mcp import HANDSHAKE, INVALID_PARAMS, META, STATELESS, UNKNOWN_METHOD, Refused
from ors.toolsets.environment import box_of
from ors.toolsets.mcp_wires import HTTP, Message, Stdio
from ors.types import Block, ImageBlock, TextBlock, ToolOutput, ToolSpec, described

FORKED = "[this is a fork, with a new MCP server: what the first one kept in memory was not copied]"
_INVALID = (AttributeError, LookupError, TypeError, ValueError)
"""What parts of an answer raise that are not as they should be."""
_CLIENT = {"name": "ors", "version": __version__}
Words = Sequence[str] | Callable[[Any], Sequence[str]]
Named = Mapping[str, str] | Callable[[Any], Mapping[str, str]]


def MCPToolset(  # noqa: N802 - it makes a class
    command: Words | None = None,
    *,
    url: str | Callable[[Any], str] | None = None,
    env: Named | None = None,
    headers: Named | None = None,
    sandbox: bool = False,
    only: Sequence[str] | Mapping[str, str] | None = None,
    prefix: str = "",
    timeout: float = 60.0,
) -> type[LiveTools]:
    """The tools of an MCP server as a toolset: `toolsets = [MCPToolset(["uvx", "mcp-server-time"])]`.

    Each session has a server of its own: the program `command`, or a connection to `url`. It starts after
    `setup()`, and ends before `teardown()`. `sandbox=True` starts the program in the environment's sandbox.

    `env` has variables for the program, `headers` go with requests. These four may be functions of the
    environment. `only` names the tools to take, or maps them to new names; `prefix` is put before each name.
    `timeout` is the time for each answer, in seconds.

    Raises:
        ValueError: the arguments do not fit together.
    """
    if (command is None) == (url is None) or isinstance(command, str) or command == []:
        raise ValueError('MCPToolset needs either command=["program", "argument", ...] or url="http://..."')
    if (headers and command is not None) or ((env or sandbox) and url is not None):
        raise ValueError("MCPToolset: env and sandbox go with command, headers with url")
    if isinstance(url, str) and not url.startswith(("http://", "https://")):
        raise ValueError(f"MCPToolset: url must begin with http:// or https://, not {url!r}")
    if timeout <= 0:
        raise ValueError(f"MCPToolset: timeout must be over 0 seconds, not {timeout}")
    given: dict[str, Any] = {"command": command, "url": url, "env": env or {}, "headers": headers or {}}
    chosen = only if isinstance(only, Mapping | None) else {name: name for name in only}
    settings = {"_given": given, "_sandbox": sandbox, "_only": chosen, "_prefix": prefix, "_timeout": timeout}
    return type("MCPToolset", (_MCPTools,), {"__module__": __name__, **settings})


class _MCPTools(LiveTools):
    _given: ClassVar[Mapping[str, Any]]
    _sandbox: ClassVar[bool]
    _only: ClassVar[Mapping[str, str] | None]
    _prefix: ClassVar[str]
    _timeout: ClassVar[float]
    _wire: Stdio | HTTP
    _revision, _last_id = "", 0

    async def open(self) -> None:
        self._turn, self._wire = asyncio.Lock(), await self._connected()
        try:
            await self._begin()
            self.specs = self._chosen({spec.name: spec for spec in await self._listed()})
        except Refused as refusal:
            raise ToolsLost(f"{self.name} refused: {refusal}") from None

    async def _connected(self) -> Stdio | HTTP:
        given = {name: value(self.env) if callable(value) else value for name, value in self._given.items()}
        if given["url"] is not None:
            parts = urlsplit(given["url"])
            self.name = f"the MCP server at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
            return HTTP(given["url"], given["headers"])
        plain = [word for word in given["command"] if not word.startswith("-")]  # an option may have a key
        self.name = f"the MCP server {' '.join(plain[:2])!r}"
        return await Stdio.start(given["command"], given["env"], box_of(self.env) if self._sandbox else None)

    async def _begin(self) -> None:
        # First as until 2025-11-25, where a server may keep state for each session, as episodes want it.
        about = {"protocolVersion": HANDSHAKE[-1], "capabilities": {}, "clientInfo": _CLIENT}
        try:
            self._revision = str((await self._request("initialize", about)).get("protocolVersion"))
            await self._send({"method": "notifications/initialized"})
        except Refused:
            self._revision = STATELESS
            await self._request("server/discover", {})

    async def _listed(self) -> list[ToolSpec]:
        found, cursor, seen = list[ToolSpec](), "", set[str]()
        while cursor not in seen:
            seen.add(cursor)
            page = await self._request("tools/list", {"cursor": cursor} if cursor else {})
            try:
                for tool in page["tools"]:
                    about, takes = tool.get("description") or "", tool["inputSchema"]
                    found.append(ToolSpec(name=tool["name"], description=about, input_schema=takes))
            except _INVALID as error:
                raise ToolsLost(f"{self.name} lists invalid tools: {error!r}") from None
            cursor = str(page.get("nextCursor") or "")
        return found

    def _chosen(self, tools: Mapping[str, ToolSpec]) -> list[ToolSpec]:
        only = {name: name for name in tools} if self._only is None else self._only
        if missing := sorted(set(only) - set(tools)):
            raise InvalidEnvironment(f"{self.name} has no tool {missing[0]!r}; it has: {', '.join(tools)}")
        self._names = {self._prefix + new: name for name, new in only.items()}
        return [tools[name].model_copy(update={"name": self._prefix + new}) for name, new in only.items()]

    async def run(self, name: str, given: Mapping[str, Any]) -> ToolOutput:
        try:
            result = await self._request("tools/call", {"name": self._names[name], "arguments": given})
            blocks = [_block(content) for content in result.get("content") or ()]
        except Refused as refusal:
            if refusal.code == INVALID_PARAMS:
                raise ToolError(str(refusal), reason="input_validation") from None
            raise RuntimeError(f"{self.name} failed: {refusal}") from None
        except _INVALID as error:
            raise ToolsLost(f"{self.name} answered with invalid content: {error!r}") from None
        if not blocks and "structuredContent" in result:
            blocks = [TextBlock(dumps(result["structuredContent"]).decode())]
        if result.get("isError"):
            raise ToolError(described(blocks) or f"{name!r} failed without a message")
        note, self.forked = [TextBlock(FORKED)] if self.forked else [], False
        return ToolOutput(blocks=[*blocks, *note])

    async def _request(self, method: str, params: Message) -> Message:
        """The result of a request.

        Raises:
            Refused: the server answered with an error. ToolsLost: it did not answer as it should.
        """
        if self._revision == STATELESS:
            meta = {"protocolVersion": STATELESS, "clientInfo": _CLIENT, "clientCapabilities": {}}
            params = {**params, "_meta": {META + key: value for key, value in meta.items()}}
        async with self._turn:
            self._last_id += 1
            return await self._send({"id": self._last_id, "method": method, "params": params})

    async def _send(self, message: Message) -> Message:
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._answer(message)
            if result is not None or "id" not in message:
                return result or {}
            why = "ended"
        except TimeoutError:
            why = f"did not answer {message['method']!r} within {self._timeout:g} s"
        except (OSError, TransportError) as error:
            why = f"was lost: {error}"
        except _INVALID as error:
            why = str(error)
        raise ToolsLost(f"{self.name} {why}{await self._wire.last_words()}")

    async def _answer(self, message: Message) -> Message | None:
        headers = {"MCP-Protocol-Version": self._revision} if self._revision else {}
        if self._revision == STATELESS and "method" in message:
            named = {"Mcp-Name": message["params"]["name"]} if message["method"] == "tools/call" else {}
            headers |= {"Mcp-Method": message["method"], **named}
        async with aclosing(self._wire.exchange({"jsonrpc": "2.0", **message}, headers)) as incoming:
            async for one in incoming:
                if "method" in one and "id" in one:  # none is served but a ping
                    refused = {"error": {"code": UNKNOWN_METHOD, "message": "This client serves no requests"}}
                    told = {"result": {}} if one["method"] == "ping" else refused
                    await self._answer({"id": one["id"], **told})
                elif one.get("id") == message["id"] and "error" in one:
                    raise Refused(one["error"]["code"], str(one["error"]["message"]))
                elif one.get("id") == message["id"]:
                    if isinstance(result := one.get("result"), dict):
                        return result
                    raise ValueError(f"answered {message['method']!r} without a result")
        return None

    async def close(self) -> None:
        if hasattr(self, "_wire"):
            await self._wire.close()


def _block(content: Any) -> Block:
    kind, inner = content["type"], content.get("resource", content)
    if kind == "text" or (kind == "resource" and "text" in inner):
        return TextBlock(inner["text"])
    data, mime = inner.get("data", inner.get("blob")), inner.get("mimeType") or ""
    if data is not None and mime.startswith("image/"):
        return ImageBlock(data=data, mimeType=mime)
    return TextBlock(f"[{' '.join(filter(None, (kind, inner.get('uri'), mime)))}]")
