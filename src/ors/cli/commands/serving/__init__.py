"""Commands that serve environments."""
