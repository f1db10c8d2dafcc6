"""Which server a request belongs to, and the way there."""
