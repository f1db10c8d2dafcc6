"""Backends on machines of other kinds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ors.sandbox import SandboxSpec, cgroups, containers, seccomp
from ors.sandbox.bwrap import Bwrap
from ors.sandbox.containers import Containers

OPEN = """
import asyncio
from ors.sandbox import SandboxSpec, open_sandbox

async def main():
    async with await open_sandbox(SandboxSpec(backend="bwrap")) as box:
        print((await box.exec("id -u; echo works")).stdout.decode())

asyncio.run(main())
"""
FORBID = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'


def in_container(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as the root of a user namespace that has no other user."""
    unshare = ["unshare", "--user", "--map-root-user"]
    return subprocess.run([*unshare, *words], capture_output=True, text=True, check=False)


def test_the_root_of_a_container_opens_a_sandbox() -> None:
    done = in_container(sys.executable, "-c", OPEN)
    assert done.stdout.split() == ["1000", "works"], done.stderr


def test_where_user_namespaces_are_forbidden_the_error_says_so() -> None:
    done = in_container("sh", "-c", FORBID, "sh", sys.executable, "-c", OPEN)
    assert "SandboxUnavailable" in done.stderr
    assert "What helps: " in done.stderr


@pytest.mark.parametrize(
    ("complaint", "why", "helps"),
    [
        ("bwrap: Unknown option --size", "older than 0.8", "install bubblewrap 0.8"),
        ("bwrap: setting up uid map: Permission denied", "AppArmor", "apparmor_restrict_unprivileged_userns"),
        ("bwrap: No permissions to create new namespace, likely…", "user namespaces", "userns_clone=1"),
        (
            "bwrap: Creating new namespace failed: Operation not permitted",
            "user namespaces",
            "userns_clone=1",
        ),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "/proc", "systempaths"),
        ("bwrap: Can't find source path /x: Permission denied", "/x", "readable for all users"),
        ("something else", "something else", "bwrap --ro-bind"),
    ],
)
def test_every_known_complaint_of_bubblewrap_is_explained(complaint: str, why: str, helps: str) -> None:
    trouble = Bwrap().explain(SandboxSpec(), complaint)
    assert why in trouble.why
    assert helps in trouble.mend


def test_engines_say_what_they_need() -> None:
    engine = Containers("docker")
    assert "no image is given" in str(engine.missing(SandboxSpec())) or "not installed" in str(
        engine.missing(SandboxSpec())
    )
    image = SandboxSpec(image="x")
    assert "no Python in x" in engine.explain(image, "sh: exec: -I: not found, python").why


@pytest.mark.parametrize(
    ("engine", "told", "counts"),
    [
        ("podman", "[cpu memory pids]", True),
        ("podman", "[]", False),  # without root, on control groups of version 1
        ("docker", "memory=true", True),
        ("docker", "memory=false", False),
        ("docker", "", False),  # no daemon
    ],
)
def test_an_engine_is_asked_whether_it_bounds_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, told: str, counts: bool
) -> None:
    (tmp_path / engine).write_text(f"#!/bin/sh\necho '{told}'\n")
    (tmp_path / engine).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    containers._counts.cache_clear()
    assert containers._counts(engine) is counts
    containers._counts.cache_clear()
    denied = json.loads(seccomp.profile(counted=counts))["syscalls"][0]["names"]
    assert ("shmget" in denied) is not counts


@pytest.mark.skipif(os.getuid() != 0, reason="control groups belong to root")
def test_control_groups_have_the_limits_and_can_be_removed() -> None:
    group = cgroups.create(SandboxSpec(memory=64 << 20, processes=7))
    if group is None:
        pytest.skip("this machine allows no control groups")
    limits = {
        path.name: path.read_text().strip()
        for folder in group.folders
        for path in folder.glob("*")
        if path.name in ("memory.max", "memory.limit_in_bytes", "pids.max")
    }
    assert set(limits.values()) == {str(64 << 20), str(7 + cgroups.SPARE)}
    assert group.oom_kills() == 0
    assert group.memory() >= 0
    group.remove()
    assert not any(folder.exists() for folder in group.folders)


@pytest.mark.parametrize(("own", "parent"), [("/app.slice/mine.scope", "app.slice"), ("/", "")])
def test_groups_of_version_two_stand_beside_the_servers_own(
    own: str, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.slice" / "mine.scope").mkdir(parents=True)
    monkeypatch.setattr(cgroups, "_mounts", lambda: [("", tmp_path)])
    monkeypatch.setattr(cgroups, "_own", lambda: [("", own)])
    group = cgroups.create(SandboxSpec(memory=1000, processes=5))
    assert group is not None
    (folder,) = group.folders
    assert folder.parent == tmp_path / parent
    assert (folder / "memory.max").read_text() == "1000"
    assert (folder / "pids.max").read_text() == str(5 + cgroups.SPARE)


def test_without_permission_there_are_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_mounts", lambda: [("", Path("/proc"))])
    monkeypatch.setattr(cgroups, "_own", lambda: [("", "/nowhere/mine")])
    assert cgroups.create(SandboxSpec()) is None
