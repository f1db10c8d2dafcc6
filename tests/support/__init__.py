"""What tests share: environments to serve, servers to start, ways to ask them."""

from pathlib import Path

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
TLS = SUPPORT / "tls"
"""A certificate for 127.0.0.1 and localhost, and its key."""
