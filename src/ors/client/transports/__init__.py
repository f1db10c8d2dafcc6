"""Transports: HTTP, HTTP through a proxy, an ASGI application in this process."""
