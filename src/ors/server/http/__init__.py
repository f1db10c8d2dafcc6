"""Requests, answers and streams, whichever way they travel."""
