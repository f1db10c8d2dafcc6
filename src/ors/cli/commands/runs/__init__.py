"""Commands that make runs, and that show them."""
