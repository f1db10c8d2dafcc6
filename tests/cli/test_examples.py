"""Every example in the help texts, in docs/cli.md, in guides and in the README, run as it stands."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from ors.cli import COMMANDS, ors
from ors.cli.options.shared import Command
from ors.client import ORS
from ors.rollouts.records import RunInfo, RunWriter
from tests.support.commands import run, running, variables
from tests.support.episode_records import episode
from tests.support.waiting import wait_until

# In one process: each would make a workshop of its own.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("workshop")]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"
GUIDES = [
    ROOT / "docs" / "guides" / f"{name}.md" for name in ("evaluating", "replay", "inspector", "recording")
]
README = (ROOT / "README.md").read_text()


def of_help() -> list[str]:
    commands = [ors.get_command(click.Context(ors), name) for name in COMMANDS]
    commands += [
        each for command in commands if isinstance(command, click.Group) for each in command.commands.values()
    ]
    return [line for command in commands if isinstance(command, Command) for line in command.examples]


def of_page() -> list[str]:
    text = "".join(page.read_text() for page in (PAGE, *GUIDES))
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [
        line
        for block in blocks
        for line in block.splitlines()
        if re.match(r"(ORS_\w+=\S+ )?ors |echo ", line)
    ]


def of_readme() -> list[str]:
    return [line.partition("#")[0].strip() for line in README.splitlines() if line.startswith("ors ")]


EXAMPLES = list(dict.fromkeys([*of_help(), *of_page(), *of_readme()]))


@dataclass(frozen=True)
class Workshop:
    """A folder with `ors` on its path and a new environment in it, and a server of that environment."""

    folder: Path
    url: str
    path: str

    def line(self, example: str) -> str:
        return re.sub(r"--port \d+", "--port 0", example.replace("http://127.0.0.1:8080", self.url))

    def env(self) -> dict[str, str]:
        return variables({"PATH": self.path, "ORS_SERVE_PORT": "0"})


def record_episode(url: str, run: Path) -> None:
    """Plays an episode that the server records."""
    with ORS(url) as client, client.environment("adder").session(split="test", index=0) as session:
        session.call_tool("submit", {"answer": 2003})
    wait_until(lambda: (run / "episodes.jsonl").stat().st_size, "the episode is recorded")


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    folder, bin_folder = tmp_path_factory.mktemp("workshop"), tmp_path_factory.mktemp("bin")
    script = bin_folder / "ors"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ors "$@"\n')
    script.chmod(0o755)
    (block,) = re.findall(r"^```python\n# doubling.py\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    (folder / "doubling.py").write_text(block)
    for words in (["adder"], ["word-game", "--template", "game"]):
        assert run("init", *words, cwd=folder).code == 0
    begun = ["--model", "noop", "--tasks", "0", "--out", "runs/begun"]
    assert run("eval", "adder", *begun, cwd=folder).code == 0
    for name in ("first", "second"):
        with RunWriter.create(folder / "runs" / name, RunInfo()) as writer:
            for index in range(4):
                writer.append(episode(index, float(index % 2)))
    with running("serve", "adder", "--port", "0", "--record", "runs/served", cwd=folder) as server:
        url = server.line(r"Serving on (http://\S+)")[1]
        record_episode(url, folder / "runs" / "served")
        yield Workshop(folder, url, f"{bin_folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    # `ors hosts` needs a Ray cluster: tests/cluster/ray/test_ray.py
    # `ors run` needs a program for openreward: tests/cli/commands/test_run.py
    # `ors sandbox pull` needs a registry: tests/sandbox/test_registries.py
    "example",
    [
        line
        for line in EXAMPLES
        if not re.match(
            "ors (serve|run |route|init|inspect|view|hosts|sandboxes|sandbox pull|mcp .*--for)", line
        )
    ],
)
def test_an_example_works(example: str, workshop: Workshop) -> None:
    done = subprocess.run(
        ["sh", "-c", workshop.line(example)],
        cwd=workshop.folder,
        env=workshop.env(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", [line for line in EXAMPLES if line.startswith("ors init")])
def test_an_example_of_init_works(example: str, workshop: Workshop, tmp_path: Path) -> None:
    subprocess.run(shlex.split(example), cwd=tmp_path, env=workshop.env(), capture_output=True, check=True)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("example", [line for line in EXAMPLES if line.startswith("ors serve")])
def test_an_example_of_serve_works(example: str, workshop: Workshop) -> None:
    words = shlex.split(workshop.line(example))[1:]
    with running(*words, cwd=workshop.folder, env={"ORS_SERVE_PORT": "0"}) as server:
        server.line("^Try: curl")
        assert server.stop().code == 0


@pytest.mark.parametrize("example", [line for line in EXAMPLES if line.startswith("ors sandboxes")])
def test_an_example_of_sandboxes_works(example: str, workshop: Workshop) -> None:
    with running(*shlex.split(workshop.line(example))[1:], cwd=workshop.folder) as server:
        server.line(f"OPENREWARD_SESSION_URL={server.url()}$")
        assert server.stop().code == 0


@pytest.mark.parametrize("example", [line for line in EXAMPLES if re.match("ors (inspect|view)", line)])
def test_an_example_of_inspect_or_view_works(example: str, workshop: Workshop) -> None:
    with running(*shlex.split(workshop.line(example))[1:], cwd=workshop.folder) as command:
        command.line("^Look at .* on http://127")
        assert command.stop().code == 0


@pytest.mark.parametrize("example", [line for line in EXAMPLES if re.match("ors mcp .*--for", line)])
def test_an_example_of_mcp_works(example: str, workshop: Workshop) -> None:
    with running(*shlex.split(workshop.line(example))[1:], cwd=workshop.folder) as command:
        command.line("^The episode is at http://127")
        assert command.stop().code == 0


def test_every_command_has_examples_on_the_page() -> None:
    page = PAGE.read_text()
    assert [name for name in COMMANDS if f"`ors {name}" not in page] == []
