"""The formats of model providers: tools and messages in requests, calls in responses.

A new provider is a module with a `Format` like those here, and a line each in `Provider` and `FORMATS`.
"""

from ors.client.formats.base import ToolInvocation
from ors.client.formats.convert import Provider, convert_tool_response, convert_tools, parse_tool_call
from ors.client.formats.messages import convert_prompt, convert_reply, convert_results

__all__ = [
    "Provider",
    "ToolInvocation",
    "convert_prompt",
    "convert_reply",
    "convert_results",
    "convert_tool_response",
    "convert_tools",
    "parse_tool_call",
]
