"""The tools of servers made with FastMCP and the `mcp` package, over standard streams and HTTP."""

import subprocess
from collections.abc import Iterator

import pytest

import ors.testing
from ors import ImageBlock, TextBlock
from ors.client import ToolCallError
from ors.toolsets import MCPToolset
from tests.support.mcp_stdio_server import PIXEL
from tests.support.side_venvs import FASTMCP, SCRIPTS, environ
from tests.toolsets.test_mcp import having, text

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
SCRIPT = str(SCRIPTS / "mcp_tools_server.py")


@pytest.fixture(params=["stdio", "http", "json"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["fastmcp", "mcp"])
def toolset(request: pytest.FixtureRequest, transport: str) -> Iterator[type]:
    command = [FASTMCP.python(), SCRIPT, request.param, transport]
    if transport == "stdio":
        yield MCPToolset(command)
        return
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environ(), text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield MCPToolset(url=f"http://127.0.0.1:{int(process.stdout.readline())}/mcp")
        finally:
            process.kill()


async def test_tools_images_errors_and_large_results_pass(toolset: type) -> None:
    async with ors.testing.session(having(toolset), split="train", index=0) as session:
        listed = {spec.name: spec for spec in await session.list_tools()}
        assert list(listed) == ["submit", "price", "picture", "large"]
        assert listed["price"].description == "What a dish costs."
        schema = listed["price"].input_schema
        assert schema is not None
        assert schema["required"] == ["dish"]
        assert (await session.call_tool("price", {"dish": "soup", "count": 2})).blocks[:1] == [
            TextBlock(text="8 euros")
        ]
        assert (await session.call_tool("picture", {})).blocks == [
            ImageBlock(data=PIXEL, mimeType="image/png")
        ]
        assert await text(session, "large") == "x" * 5_000_000
        for given in ({"dish": "cake"}, {}):
            with pytest.raises(ToolCallError, match="price"):
                await session.call_tool("price", given)
        assert (await session.call_tool("submit", {})).reward == 1.0
