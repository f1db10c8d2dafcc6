"""Commands that set up `ors` itself."""
