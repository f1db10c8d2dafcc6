"""schemathesis, which makes requests from the OpenAPI document of a server and checks the answers."""

import subprocess
from pathlib import Path

import pytest

from ors import Blocks, Environment, Server, TextBlock, ToolOutput, tool
from ors.server.admin.openapi import OPERATIONS
from tests.support.live_server import serving
from tests.support.side_venvs import SCHEMATHESIS, environ

# A schema cannot tell that an id is taken, an index past the end of its split, or an integer written as 1.0
# (400), or that a session has ended (410).
CONFIGURATION = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 404, 410]
negative_data_rejection.expected-statuses = [400, 404, 405, 410]
"""


class Guess(Environment):
    """Takes any task: a setup that refused one would be an error of the server."""

    tasks = {"train": [{"number": 1}, {"number": 2}], "test": [{"number": 3}]}

    async def get_prompt(self) -> Blocks:
        return [TextBlock("Guess.")]

    @tool
    async def guess(self, number: int) -> ToolOutput:
        """Guess the number."""
        right = number == self.task_spec.get("number")
        return ToolOutput([TextBlock("Yes." if right else "No.")], reward=float(right), finished=right)


class Again(Guess):
    """A second environment."""

    tasks = {"validation": [{"number": 4}]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("keys", [[], ["k3y"]])
def test_schemathesis_finds_nothing(keys: list[str], tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    with serving(Server([Guess, Again], api_keys=keys)) as url:
        command = [SCHEMATHESIS.python(), "-m", "schemathesis.cli", "run", f"{url}/-/openapi.json"]
        command += ["--max-examples=10", "--seed=1", "--no-color"]
        command += [f"--header=X-API-Key: {key}" for key in keys]
        done = subprocess.run(command, cwd=tmp_path, env=environ(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert f"Tested: {len(OPERATIONS) - 1}\n" in done.stdout  # all but the document itself
