"""Requests to a server: retries, the line of a full server, and what its answers mean."""
