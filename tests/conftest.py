import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from ors import Server
from tests.support.environments import Lab, Other
from tests.support.live_server import serving
from tests.support.raw_http import Raw

# Compiled modules are kept: the tests start hundreds of processes, and compiling takes a third of a start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if find_spec("hypothesis"):  # the environments of trainers do not have it
    from hypothesis import HealthCheck, settings

    # How long an example takes says something about the machine, and nothing about the code.
    settings.register_profile("ors", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("ors")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # pytest-xdist 3.8.0 adds the group to an attribute that pytest 9.2 does not read: groups would be spread.
    if getattr(config.option, "loadgroup", False) and hasattr(pytest.Item, "id"):
        for item in items:
            for mark in item.iter_markers("xdist_group"):
                item._id = type(item.id).parse(f"{item.nodeid}@{mark.args[0]}")


def pytest_xdist_auto_num_workers() -> int:
    """Two processes a core: most of the time, tests wait for servers, clocks and processes."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2 * (os.cpu_count() or 1)


@pytest.fixture(scope="session")
def raw() -> Iterator[Raw]:
    """A server with two environments."""
    with serving(Server([Lab, Other])) as url:
        yield Raw(url)


@pytest.fixture(scope="session")
def alone() -> Iterator[Raw]:
    """A server with one environment."""
    with serving(Server([Lab])) as url:
        yield Raw(url)
