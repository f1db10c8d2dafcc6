"""Ties tests to the manifest of requirements, `src/ors/conformance/requirements.toml`."""

import pytest

from ors.conformance.requirements import manifest


def proves(*ids: str) -> pytest.MarkDecorator:
    """Marks a test as a proof of requirements.

    Raises:
        ValueError: the manifest has no such requirement.
    """
    unknown = set(ids) - manifest().keys()
    if unknown:
        raise ValueError(f"no such requirement: {', '.join(sorted(unknown))}")
    return pytest.mark.proves(*ids)
