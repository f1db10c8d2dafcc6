"""Tools for `Environment.toolsets`: of MCP servers, and in a sandbox (derive from `SandboxEnvironment`)."""

from ors.toolsets.environment import SandboxEnvironment, Submit
from ors.toolsets.files import Files
from ors.toolsets.mcp import MCPToolset
from ors.toolsets.programs import Bash, Python

__all__ = ["Bash", "Files", "MCPToolset", "Python", "SandboxEnvironment", "Submit"]
