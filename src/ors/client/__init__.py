"""The client of the Open Reward Standard: async, and the same without `await`."""

from ors.client._asgi import ASGITransport
from ors.client._async import AsyncEnvironment, AsyncEnvironmentsAPI, AsyncORS, http_transport
from ors.client._options import Options
from ors.client._session import AsyncSession
from ors.client._sync import ORS, Environment, EnvironmentsAPI, Session
from ors.client._transport import Response, Transport
from ors.client._wire import Task
from ors.client.formats import (
    Provider,
    ToolInvocation,
    convert_tool_response,
    convert_tools,
    parse_tool_call,
)
from ors.errors import AuthenticationError, ToolCallError
from ors.types import ImageBlock, TerminalToolSpec, TextBlock, ToolOutput, ToolSpec

SyncSession = Session

__all__ = [
    "ORS",
    "ASGITransport",
    "AsyncEnvironment",
    "AsyncEnvironmentsAPI",
    "AsyncORS",
    "AsyncSession",
    "AuthenticationError",
    "Environment",
    "EnvironmentsAPI",
    "ImageBlock",
    "Options",
    "Provider",
    "Response",
    "Session",
    "SyncSession",
    "Task",
    "TerminalToolSpec",
    "TextBlock",
    "ToolCallError",
    "ToolInvocation",
    "ToolOutput",
    "ToolSpec",
    "Transport",
    "convert_tool_response",
    "convert_tools",
    "http_transport",
    "parse_tool_call",
]
