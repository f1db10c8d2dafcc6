"""What the adapters share: messages, tools, clients, and episodes without a reward."""
