"""Ways to reach a server: HTTP, an HTTP proxy, an ASGI application in this process."""
