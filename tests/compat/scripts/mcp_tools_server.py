"""An MCP server made with FastMCP or the `mcp` package: `mcp_tools_server.py fastmcp|mcp stdio|http|json`.

Over HTTP it prints the port that it listens on; "json" answers without events.
"""

import asyncio
import socket
import sys
from importlib import import_module
from typing import Any

PACKAGE, TRANSPORT = sys.argv[1:3]

NAMES = {
    "fastmcp": ("fastmcp", "FastMCP", "fastmcp.utilities.types"),
    "mcp": ("mcp.server", "MCPServer", "mcp.server.mcpserver"),
}
package, made_by, images = NAMES[PACKAGE]
app: Any = getattr(import_module(package), made_by)("shop")
Image: Any = import_module(images).Image

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501"
    "012718e3660000000049454e44ae426082"
)


@app.tool()
def price(dish: str, count: int = 1) -> str:
    """What a dish costs."""
    if dish != "soup":
        raise ValueError(f"there is no {dish}")
    return f"{count * 4} euros"


@app.tool()
def picture() -> Image:
    """A picture of the soup."""
    return Image(data=PIXEL, format="png")


@app.tool()
def large() -> str:
    """5 MB."""
    return "x" * 5_000_000


def listening() -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    made.listen()
    return made


async def serve_http() -> None:
    import uvicorn

    json_response = TRANSPORT == "json"
    if PACKAGE == "fastmcp":
        web = app.http_app(json_response=json_response)
    else:
        web = app.streamable_http_app(json_response=json_response)
    made = listening()
    print(made.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(web, log_level="error")).serve(sockets=[made])


if TRANSPORT == "stdio":
    app.run(**({"show_banner": False} if PACKAGE == "fastmcp" else {"transport": "stdio"}))
else:
    asyncio.run(serve_http())
