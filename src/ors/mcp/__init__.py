"""An episode as an MCP server: its messages, what they answer, and how HTTP carries both. Reads no socket."""
