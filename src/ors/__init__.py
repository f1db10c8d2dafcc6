"""The Open Reward Standard in Python: write environments, serve them, call them.

To write and serve: `from ors import Environment, Server, tool, ToolOutput, TextBlock`.
To call: `from ors.client import ORS, AsyncORS`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ors._version import __version__

if TYPE_CHECKING:
    from ors.environment import Environment, Toolset, terminal, tool
    from ors.errors import ToolError
    from ors.limits import Limits
    from ors.server import ApiKey, Server
    from ors.task_files import tasks_from
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

__all__ = [
    "ApiKey",
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
    "tasks_from",
    "terminal",
    "tool",
]


_HOMES = {
    "ApiKey": "ors.server",
    "Environment": "ors.environment",
    "Limits": "ors.limits",
    "Server": "ors.server",
    "ToolError": "ors.errors",
    "Toolset": "ors.environment",
    "tasks_from": "ors.task_files",
    "terminal": "ors.environment",
    "tool": "ors.environment",
}


def __getattr__(name: str) -> Any:
    # On demand: a client loads no authoring code, and authors no web server.
    if name not in __all__:
        raise AttributeError(f"module 'ors' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES.get(name, "ors.types")), name)
    return value
