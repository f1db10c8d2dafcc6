"""`ors sandbox check`: what this machine can isolate."""

import os

import pytest

from tests.support.commands import run

pytestmark = pytest.mark.long


def test_check_opens_a_sandbox_on_each_backend() -> None:
    done = run("sandbox", "check", "--quick", "--json")
    assert done.code == 0
    rows = {row["backend"]: row for row in done.json}
    assert list(rows) == ["bwrap", "podman", "docker"]
    assert rows["bwrap"]["works"]
    assert rows["docker"]["why_not"].startswith("no image is given. What helps: SandboxSpec(image=")
    assert rows["bwrap"]["uncounted"]


def test_check_prints_the_memory_that_no_limit_counts() -> None:
    done = run("sandbox", "check", "--quick")
    (line,) = [
        line for line in done.out.splitlines() if line.startswith("Memory not counted by any limit with")
    ]
    assert line.split(": ")[1].startswith("none" if os.getuid() == 0 else "pipes")


@pytest.mark.long
def test_check_attacks_and_prints_a_table() -> None:
    done = run("sandbox", "check")
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("bwrap")]
    words = line.split()
    assert words[1] == "yes"
    assert words[2] == words[4]
    assert int(words[2]) > 90


def test_without_any_backend_the_command_fails_and_says_what_helps() -> None:
    done = run("sandbox", "check", env={"PATH": "/nowhere"})
    assert done.code == 1
    assert "sudo apt-get install bubblewrap" in done.out
    assert "no backend can isolate programs on this machine" in done.err
