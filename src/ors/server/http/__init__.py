"""Requests, answers and streams, independent of how they are transported."""
