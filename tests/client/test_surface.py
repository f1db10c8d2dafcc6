"""The public surface: what is exported, and that sync and async say the same."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

import ors.client
from ors.client import (
    ORS,
    AsyncEnvironment,
    AsyncEnvironmentsAPI,
    AsyncORS,
    AsyncSession,
    Environment,
    EnvironmentsAPI,
    Session,
    SyncSession,
)

PAIRS = [
    (AsyncORS, ORS),
    (AsyncEnvironmentsAPI, EnvironmentsAPI),
    (AsyncEnvironment, Environment),
    (AsyncSession, Session),
]
# What the client's own background task needs of a session.
INTERNAL = {"lose"}

# ors-sdk 0.1.0: the names of its `ors.client`, and the parameters of their methods.
REFERENCE = {
    "ORS": {"__init__": "base_url api_key", "environment": "name", "close": ""},
    "AsyncORS": {"__init__": "base_url api_key", "environment": "name"},
    "EnvironmentsAPI": {"__init__": "base_url api_key", "get": "name base_url", "close": ""},
    "AsyncEnvironmentsAPI": {"__init__": "base_url api_key", "get": "name base_url"},
    "AsyncEnvironment": {
        "__init__": "name client api_key",
        "list_splits": "",
        "list_tasks": "split",
        "num_tasks": "split",
        "get_task": "split index",
        "get_task_range": "split start stop",
        "list_tools": "format",
        "session": "task secrets split index",
    },
    "AsyncSession": {
        "__init__": "env task secrets api_key split index",
        "get_prompt": "",
        "list_tools": "format",
        "call_tool": "tool_name input",
    },
    "Session": {"get_prompt": "", "list_tools": "format", "call_tool": "tool_name input"},
    "Environment": {"list_splits": "", "session": "task secrets split index"},
    "Task": {"__init__": "environment_name task_spec"},
    "convert_tool_response": {},
    "AuthenticationError": {},
    "ImageBlock": {},
    "Provider": {},
    "SyncSession": {},
    "TextBlock": {},
    "ToolCallError": {},
    "ToolOutput": {},
    "ToolSpec": {},
}


def public(cls: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_") and inspect.isfunction(member)
    }


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda cls: cls.__name__)
def test_sync_and_async_have_the_same_methods_with_the_same_parameters(one: type, other: type) -> None:
    ours, theirs = public(one), public(other)
    assert ours.keys() - INTERNAL == theirs.keys()
    for name in theirs:
        there = list(inspect.signature(ours[name]).parameters.values())
        here = list(inspect.signature(theirs[name]).parameters.values())
        assert here == there, name


@pytest.mark.parametrize(("one", "other"), PAIRS[:2], ids=lambda cls: cls.__name__)
def test_sync_and_async_are_made_the_same_way(one: type, other: type) -> None:
    assert inspect.signature(one) == inspect.signature(other)


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_the_surface_of_the_reference_is_there(name: str) -> None:
    assert name in ors.client.__all__
    for method, parameters in REFERENCE[name].items():
        found = list(inspect.signature(getattr(getattr(ors.client, name), method)).parameters)[1:]
        wanted = parameters.split()
        assert found[: len(wanted)] == wanted, method


def test_exports_are_sorted_and_exist() -> None:
    assert len(set(ors.client.__all__)) == len(ors.client.__all__)
    assert all(hasattr(ors.client, name) for name in ors.client.__all__)
    assert SyncSession is Session


def test_every_public_method_is_documented() -> None:
    for pair in PAIRS:
        for cls in pair:
            assert all(member.__doc__ for member in public(cls).values()), cls


def test_importing_the_client_loads_no_server_and_no_http_library() -> None:
    code = "import sys; from ors.client import ORS; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout.split()
    assert not {"ors.server", "uvicorn", "aiohttp", "ors.testing"} & set(loaded)
