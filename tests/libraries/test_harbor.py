"""Task folders of Harbor: played in a sandbox, and graded in another one, out of the agent's reach."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ors.testing
from ors.errors import InvalidEnvironment, ServerFailed, ToolFailed
from ors.libraries import library_environments
from ors.libraries.harbor import Task

pytestmark = pytest.mark.long
TOML = '[verifier]\ntimeout_sec = 20\n[verifier.env]\nWANTED = "hello you"\n[environment]\nmemory_mb = 512\n'
DOCKERFILE = """
# A comment
FROM ubuntu:24.04
ENV GREETING="hello you" \\
    OTHER=x
WORKDIR /app
COPY data ./data
COPY *.txt /app/
"""
TEST = """#!/bin/bash
if [ "$(cat hello.txt)" = "$WANTED" ] && grep -q more data/more.txt && grep -q one one.txt
then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
SOLVE = '#!/bin/bash\nprintf "$GREETING" > hello.txt\ncp /solution/proof.txt /tmp\n'


def task(root: Path, name: str = "hello", **changed: str) -> Path:
    files: Mapping[str, str] = {
        "task.toml": TOML,
        "instruction.md": "Write the greeting to hello.txt.",
        "environment/Dockerfile": DOCKERFILE,
        "environment/data/more.txt": "more",
        "environment/one.txt": "one",
        "tests/test.sh": TEST,
        "solution/solve.sh": SOLVE,
        "solution/proof.txt": "q.e.d.",
        **{path.replace("__", "/").replace("_", "."): text for path, text in changed.items()},
    }
    for path, text in files.items():
        (root / name / path).parent.mkdir(parents=True, exist_ok=True)
        (root / name / path).write_text(text)
    return root / name


async def played(folder: Path, *commands: str) -> Any:
    """Runs commands and submits; what they print goes before the reward."""
    (cls,) = library_environments(f"harbor:{folder}")
    printed = []
    async with ors.testing.session(cls, split="test", index=0) as session:
        for command in commands:
            printed.append((await session.call_tool("bash", {"command": command})).blocks[0].text)  # type: ignore[union-attr]
        return [*printed, (await session.call_tool("submit", {})).reward]


def test_the_solution_earns_1_and_nothing_else_does(tmp_path: Path) -> None:
    task(tmp_path / "tasks")
    task(tmp_path / "tasks", "second")
    command = [
        sys.executable,
        "-m",
        "ors",
        "eval",
        "harbor:tasks",
        "--model",
        "gold",
        "--out",
        "run",
        "--json",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == [1.0, 1.0]
    hidden = "ls /tests /solution 2>/dev/null; pwd; ls; id -u"
    printed, reward = asyncio.run(played(tmp_path / "tasks", hidden))
    assert (printed.split(), reward) == (["/app", "data", "one.txt", "0"], 0.0)


FORGED = "mkdir -p /tests /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 'echo 1' > /tests/test.sh"
RUNS_IT = """#!/bin/bash
if python3 -c 'import json; raise SystemExit(1)'; then reward=1; else reward=0; fi
bash run.sh
echo $reward > /logs/verifier/reward.txt
"""


@pytest.mark.parametrize(
    "command",
    [
        FORGED,
        "printf '#!/bin/sh\\nexit 0' > /usr/bin/grep; rm data/*; printf 'hello you' > hello.txt",
        "(while :; do echo 1 > /logs/verifier/reward.txt; done) 2>/dev/null & echo 'exit 0' > run.sh",
        "echo 'import os; os._exit(0)' > json.py; cp json.py sitecustomize.py; echo 'exit 0' > run.sh",
        "echo 'echo 1 > /logs/verifier/reward.txt; kill -9 $PPID' > run.sh",
        "echo 'echo 1 > /logs/verifier/reward.txt; kill -9 -1' > run.sh",
        "ln -s /logs logs; ln -s /etc/passwd hello.txt",
    ],
)
async def test_work_that_tampers_with_its_tests_earns_nothing(tmp_path: Path, command: str) -> None:
    tests = {"tests__test_sh": RUNS_IT} if "run.sh" in command else {}
    assert (await played(task(tmp_path, **tests), command))[-1] == 0.0


async def test_rewards_in_json_go_before_text_and_tests_without_a_reward_fail(tmp_path: Path) -> None:
    named = 'echo \'{"a": 1, "b": 0.5}\' > /logs/verifier/reward.json; echo 0 > /logs/verifier/reward.txt'
    assert await played(task(tmp_path, "named", tests__test_sh=named)) == [0.75]
    with pytest.raises(ToolFailed, match=r"neither /logs/verifier/reward.txt nor reward.json"):
        await played(task(tmp_path, "silent", tests__test_sh="exit 1"))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"environment__Dockerfile": "FROM --platform=linux/amd64 x\nRUN apt-get install y\n"},
            "hello: .* says 'RUN apt-get install y'",
        ),
        ({"environment__Dockerfile": "FROM x AS y\nFROM z\nCOPY --from=y a b\n"}, "says 'FROM z'"),
        ({"task_toml": "[[steps]]\nname = 'one'\n"}, "several steps"),
        ({"task_toml": "x"}, "cannot be read"),
        ({"environment__Dockerfile": "FROM x\nCOPY nothing /app\n"}, "hello: there is no nothing to copy"),
    ],
)
def test_what_a_sandbox_cannot_do_is_refused_by_name(
    tmp_path: Path, changed: dict[str, str], why: str
) -> None:
    folder = task(tmp_path, **changed)
    (cls,) = library_environments(f"harbor:{folder}")
    with pytest.raises(InvalidEnvironment, match=why):
        cls.list_splits()
    if "RUN" in why:
        built: Any = cls.configured(image="/srv/built.tar")
        assert built.list_splits() == ["test"]
        assert built._task({"task": "hello"}).spec("none").image == "/srv/built.tar"
        task(tmp_path, "other")
        (both,) = library_environments(f"harbor:{tmp_path}")
        assert both.list_tasks("test") == [{"task": "other"}]


async def test_only_tasks_of_the_folder_can_be_asked_for(tmp_path: Path) -> None:
    (cls,) = library_environments(f"harbor:{task(tmp_path / 'tasks')}")
    task(tmp_path, "secret")
    for name in ("../secret", "secret", "", "..", str(tmp_path / "secret")):
        with pytest.raises(ServerFailed, match="there is no task"):
            async with ors.testing.session(cls, task_spec={"task": name}) as session:
                await session.get_prompt()


def test_folders_that_copies_name_are_found_as_docker_does(tmp_path: Path) -> None:
    text = "FROM x\nWORKDIR /srv\nWORKDIR app\nCOPY . .\nCOPY one.txt two.txt\nCOPY data /data\nENV A b c\n"
    folder = task(tmp_path, environment__Dockerfile=f"{text}CMD x\n")
    read, place = Task.read(folder, None), folder / "environment"
    assert (read.image, read.workdir, read.env) == ("x", "/srv/app", {"A": "b c"})
    assert read.copies == [
        (place, "/srv/app"),
        (place / "one.txt", "/srv/app/two.txt"),
        (place / "data", "/data"),
    ]
