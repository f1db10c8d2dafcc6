"""Servers that forward to each other, and routers, as processes."""
