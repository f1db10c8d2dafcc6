"""Example environments, one file each; `python -m examples` serves them all."""
