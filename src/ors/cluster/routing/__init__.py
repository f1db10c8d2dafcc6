"""Finds the server of each request, and keeps the links to all servers."""
