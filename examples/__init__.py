"""Example environments, one file each; `python -m examples` serves those that need no API key."""
