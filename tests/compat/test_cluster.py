"""The clients of the field, unmodified, through workers and through a router."""

import json
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat.test_pairings import check
from tests.support.commands import running
from tests.support.side_venvs import OPENREWARD, ORS_SDK, SCRIPTS, Package, environ

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("compat")]
ENVIRONMENT = """
import ors
from tests.compat.scripts.abacus import made
Abacus = made(ors)
Abacus.__module__ = __name__
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["workers", "router"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three servers behind one address."""
    target = tmp_path_factory.mktemp("abacus") / "abacus.py"
    target.write_text(textwrap.dedent(ENVIRONMENT))
    with ExitStack() as stack:

        def start(*words: str) -> str:
            made = stack.enter_context(running(*words, "--port", "0", cwd=ROOT, env=UNBUFFERED))
            return made.line(r"ing on (http://\S+)")[1]

        if request.param == "workers":
            yield start("serve", str(target), "--workers", "3")
        else:
            urls = [start("serve", str(target), "--slot", str(slot)) for slot in range(3)]
            yield start("route", *(word for each in urls for word in ("--to", each)))


UNBUFFERED = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


@pytest.mark.parametrize("package", [ORS_SDK, OPENREWARD], ids=lambda package: package.name)
def test_their_client_plays_episodes_through_several_servers(package: Package, url: str) -> None:
    command = [package.python(), str(SCRIPTS / "their_episode.py"), package.name, url]
    urls = environ(OPENREWARD_API_URL=url, OPENREWARD_SESSION_URL=url)
    for _ in range(3):  # they land on different servers
        done = subprocess.run(command, env=urls, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        check(json.loads(done.stdout.splitlines()[-1]))
