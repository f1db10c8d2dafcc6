"""The field's two servers, with the probe: what docs/conformance.md says of them is what is found."""

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import ors.conformance.probe
from ors.conformance import Report, check
from ors.conformance.checks import all_checks
from tests.support.side_venvs import OPENREWARD, ORS_SDK, Package, environ
from tests.support.waiting import wait_until

DOCS = Path(__file__).parents[2] / "docs" / "conformance.md"
BY_CHANCE = {"create.race"}
"""On these, a server fails now and then."""
SERVE = """
import sys
from {module} import Server
from probe import Probe, ProbeIndexed
Server([Probe, ProbeIndexed]).run("127.0.0.1", int(sys.argv[1]))
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@contextmanager
def probed(package: Package, home: Path) -> Iterator[str]:
    """A server of another package that hosts the probe; all that is changed is where it imports from."""
    source = Path(ors.conformance.probe.__file__).read_text()
    (home / "probe.py").write_text(source.replace("\nfrom ors import ", f"\nfrom {package.module} import "))
    (home / "serve.py").write_text(SERVE.format(module=package.module))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [package.python(), "serve.py", str(port)]
    process = subprocess.Popen(
        command, cwd=home, env=environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    def listens() -> bool:
        assert process.poll() is None, "the server has ended"
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        return False

    wait_until(listens, "the server of another package, which does not tell when it listens")


def recorded(package: Package) -> set[str]:
    """The requirements that the docs say it fails."""
    rows = re.findall(r"^\| `([a-z0-9.-]+)` \| (?:must|should) \| (.*?) \| (.*?) \|$", DOCS.read_text(), re.M)
    column = 1 if package is ORS_SDK else 2
    return {row[0] for row in rows if row[column]}


@pytest.mark.xdist_group("compat")
@pytest.mark.parametrize("package", [ORS_SDK, OPENREWARD], ids=lambda package: package.name)
def test_the_docs_say_what_is_found(package: Package, tmp_path: Path) -> None:
    with probed(package, tmp_path) as url:
        report = check(url)
    assert report.probed
    slow = {check.id for check in all_checks() if "slow" in check.needs}
    assert failed(report) - BY_CHANCE == recorded(package) - BY_CHANCE - slow
    assert {r.requirement.id for r in report.of("not tried")} - slow == {
        "http.single-redirect",
        "http.single-redirect-308",
        "task.second-names",
    }


def failed(report: Report) -> set[str]:
    return {result.requirement.id for result in report.of("failed")}
