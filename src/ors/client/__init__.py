"""The client of the Open Reward Standard, async and sync."""

from ors.client.client import AsyncEnvironmentsAPI, AsyncORS, http_transport
from ors.client.requests.decode import SessionScore, Task
from ors.client.sessions.environment import AsyncEnvironment
from ors.client.sessions.session import AsyncSession
from ors.client.sync import ORS, Environment, EnvironmentsAPI, Session
from ors.client.transports.asgi import ASGITransport
from ors.client.transports.base import Response, Transport
from ors.client.transports.options import Options
from ors.errors import AuthenticationError, ToolCallError
from ors.providers import Provider
from ors.providers.convert import (
    convert_prompt,
    convert_reply,
    convert_results,
    convert_tool_response,
    convert_tools,
    parse_tool_call,
)
from ors.providers.messages import ToolInvocation
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
    "SessionScore",
    "SyncSession",
    "Task",
    "TerminalToolSpec",
    "TextBlock",
    "ToolCallError",
    "ToolInvocation",
    "ToolOutput",
    "ToolSpec",
    "Transport",
    "convert_prompt",
    "convert_reply",
    "convert_results",
    "convert_tool_response",
    "convert_tools",
    "http_transport",
    "parse_tool_call",
]
