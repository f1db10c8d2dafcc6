"""The Open Reward Standard in Python: write environments, serve them, call them.

To write and serve: `from ors import Environment, Server, tool, ToolOutput, TextBlock`.
To call: `from ors.client import ORS, AsyncORS`.
"""

from typing import TYPE_CHECKING, Any

from ors._version import __version__
from ors.environment import Environment, Toolset, tool
from ors.errors import ToolError
from ors.types import (
    Blocks,
    CreateSession,
    ImageBlock,
    JSONObject,
    JSONValue,
    ListToolsOutput,
    RunToolError,
    RunToolOutput,
    RunToolSuccess,
    Split,
    TextBlock,
    ToolCall,
    ToolOutput,
    ToolSpec,
)

if TYPE_CHECKING:
    from ors.server import Limits, Server

__all__ = [
    "Blocks",
    "CreateSession",
    "Environment",
    "ImageBlock",
    "JSONObject",
    "JSONValue",
    "Limits",
    "ListToolsOutput",
    "RunToolError",
    "RunToolOutput",
    "RunToolSuccess",
    "Server",
    "Split",
    "TextBlock",
    "ToolCall",
    "ToolError",
    "ToolOutput",
    "ToolSpec",
    "Toolset",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    # On demand, so that `import ors` loads no web server.
    if name in ("Limits", "Server"):
        from ors import server

        return getattr(server, name)
    raise AttributeError(f"module 'ors' has no attribute {name!r}")
