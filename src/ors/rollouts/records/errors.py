"""Errors of run folders."""


class RunError(ValueError):
    """A run cannot be read or written; the message says why, and what to do."""


class NewerSchema(RunError):
    """A run was written by a newer version of this package."""
