"""Parts that all adapters use: messages, tools, clients, and episodes without a reward."""
