"""An episode as an MCP server: its messages, and the streamable HTTP that carries them.

Nothing here reads a socket or knows a server: a route of the server, a pipe and a bridge all answer with it.
"""

from ors.mcp.answers import Dialogue, Episode
from ors.mcp.http import HTTPDialogue, Reply
from ors.mcp.messages import Message, Refused, error, progress, read

__all__ = ["Dialogue", "Episode", "HTTPDialogue", "Message", "Refused", "Reply", "error", "progress", "read"]
