"""The Open Reward Standard in Python: write environments, serve them, call them."""
