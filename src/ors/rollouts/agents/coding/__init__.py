"""Coding agents as agents: their own programs, which play episodes over MCP."""
