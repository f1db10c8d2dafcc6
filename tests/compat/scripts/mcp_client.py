"""Plays an episode with a real MCP client, in an environment of its own: CLIENT URL FILE. Prints JSON."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client as FastClient
from mcp import ClientSession
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


class Low:
    """The handshake, by the low-level session."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def tools(self) -> Any:
        return (await self.session.list_tools()).tools

    async def task(self) -> Any:
        return (await self.session.get_prompt("task")).messages

    async def call(self, name: str, given: dict[str, Any], on_progress: Any = None) -> Any:
        return await self.session.call_tool(name, given, progress_callback=on_progress)


class Fast(Low):
    async def tools(self) -> Any:
        return await self.session.list_tools()

    async def call(self, name: str, given: dict[str, Any], on_progress: Any = None) -> Any:
        return await self.session.call_tool_mcp(name, given, progress_handler=on_progress)


@asynccontextmanager
async def connected(client: str, url: str) -> AsyncIterator[tuple[Low, str, str]]:
    if client == "handshake":
        async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
            about = await session.initialize()
            yield Low(session), about.protocol_version, about.instructions
    elif client == "high-level":
        async with Client(url) as session:
            yield Low(session), session.protocol_version, session.instructions
    else:
        async with FastClient(url, mode="auto" if client == "fastmcp" else "legacy") as session:
            about = session.session
            yield Fast(session), str(about.protocol_version), str(about.instructions)


def shown(result: Any) -> dict[str, Any]:
    return {
        "error": bool(result.is_error),
        "content": [
            each.text if each.type == "text" else [each.type, len(each.data)] for each in result.content
        ],
        "structured": result.structured_content,
    }


async def main(client: str, url: str, file: str) -> None:
    signs: list[float] = []

    async def on_progress(progress: float, total: Any = None, message: Any = None) -> None:
        signs.append(progress)
        Path(file).touch()

    found: dict[str, Any] = {}
    async with connected(client, url) as (session, version, instructions):
        found["version"], found["instructions"] = version, instructions
        found["tools"] = {tool.name: tool.input_schema for tool in await session.tools()}
        found["task"] = [message.content.type for message in await session.task()]
        long = next(name for name in found["tools"] if name.startswith("a_tool_"))
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "hint": ("hint", {}),
            "refuse": ("refuse", {}),
            "fail": ("fail", {}),
            "invalid": ("picture", {"size": "many"}),
            "long_name": (long, {"text": "again"}),
            "task_tool": ("of_this_task", {}),
            "large": ("picture", {"size": 3_000_000}),
        }
        for key, (name, given) in calls.items():
            found[key] = shown(await session.call(name, given))
        found["slow"] = shown(await session.call("wait", {"path": file}, on_progress))
        found["signs"] = len(signs)
        Path(file).unlink()
        found["slow_and_large"] = shown(
            await session.call("wait", {"path": file, "size": 3_000_000}, on_progress)
        )
        try:
            found["unknown"] = shown(await session.call("nope", {}))
        except Exception as error:
            found["unknown"] = f"{getattr(error, 'code', '')} {error}"
        found["submit"] = shown(await session.call("submit", {"answer": "xyzzy-4711"}))
        found["after"] = shown(await session.call("hint", {}))
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))
