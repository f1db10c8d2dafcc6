"""The Grafana dashboard: every query finds something in a Prometheus that scrapes a real server."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ors import Blocks, Environment, Server, TextBlock, ToolOutput, tool
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy" / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
VALUES = {"$environment": ".*", "$job": "ors", "$__rate_interval": "1m"}


class Guess(Environment):
    """Does everything that a panel shows."""

    tasks = {"train": [{"number": 1}, {"number": None}]}

    async def setup(self) -> None:
        if self.task_spec["number"] is None:
            raise ValueError("no number")

    async def get_prompt(self) -> Blocks:
        return [TextBlock("Guess.")]

    @tool
    async def guess(self, number: int) -> ToolOutput:
        """Guess the number."""
        right = number == self.task_spec["number"]
        time.sleep(0.5 if number == 0 else 0.0)  # holds up the loop
        return ToolOutput(
            [TextBlock("Right." if right else "Wrong.")],
            rewards={"right": 1.0 if right else -1.0},
            finished=right,
        )


def play(raw: Raw) -> None:
    for answer in (0, 1):
        sid = raw.session("guess", {"number": 1})
        raw.call(sid, "guess", {"number": answer}, env="guess")
        raw.call(sid, "guess", {"number": "?"}, env="guess")
        raw("DELETE", f"/-/sessions/{sid}")
    twice = {"Idempotency-Key": "once"}
    sid = raw.session("guess", {"number": 1})
    for _ in range(2):
        raw.call(sid, "guess", {"number": 2}, env="guess", headers=twice)
    raw("DELETE", f"/-/sessions/{sid}")
    failed = raw.session("guess", {"number": None})
    assert raw("POST", "/ping", sid=failed).status == 500
    assert raw("GET", "/health", headers={"Host": "elsewhere.example"}).status == 403


@contextmanager
def prometheus(url: str, folder: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes a server twice a second."""
    target: dict[str, Any] = {"job_name": "ors", "metrics_path": "/-/metrics"}
    target |= {"static_configs": [{"targets": [url.removeprefix("http://")]}], "scrape_interval": "500ms"}
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [target]}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", "--config.file=prometheus.yml", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], cwd=folder, stderr=log)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def found(address: str, query: str) -> list[Any]:
    for name, value in VALUES.items():
        query = query.replace(name, value)
    assert "$" not in query
    asked = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{asked}") as answer:
            return list(json.load(answer)["data"]["result"])
    except urllib.error.HTTPError as refused:
        raise AssertionError(refused.read().decode()) from None
    except OSError:
        return []  # it is not up yet


@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus: make prometheus")
def test_every_query_of_the_dashboard_finds_something(tmp_path: Path) -> None:
    with serving(Server([Guess])) as url, prometheus(url, tmp_path) as address:
        play(Raw(url))
        for title, query in QUERIES:
            wait_until(partial(found, address, query), f"{title}: {query}")


def test_panels_do_not_overlap_and_name_their_source() -> None:
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(x < 24 for x, _ in cells)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {f"${variable['name']}" for variable in DASHBOARD["templating"]["list"]}
    assert all(panel["datasource"]["uid"] in variables for panel in PANELS)
