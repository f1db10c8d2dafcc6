"""Tools in the formats of model providers: specs in requests, calls in responses.

A new provider is a module with a `Format` like those here, and a line each in `Provider` and `FORMATS`.
"""

from ors.client.formats.base import ToolInvocation
from ors.client.formats.convert import Provider, convert_tool_response, convert_tools, parse_tool_call

__all__ = ["Provider", "ToolInvocation", "convert_tool_response", "convert_tools", "parse_tool_call"]
