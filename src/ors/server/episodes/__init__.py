"""Runs environment code: episodes, threads, and the wording of failures."""
