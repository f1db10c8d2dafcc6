"""Environments that pay for a judge: `ors test` says how many episodes it plays, and stays within that."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.commands import run

pytestmark = pytest.mark.long

CODE = '''
import os, urllib.request
from ors import Environment, ToolOutput, tool

class Judged(Environment):
    """Asks a judge."""
    tasks = {"train": [{"n": n} for n in range(3)]}

    def get_prompt(self):
        return "Write an essay."

    @tool
    def submit(self, essay: str) -> ToolOutput:
        """Submits it."""
        with urllib.request.urlopen(os.environ["JUDGE"]) as answer:
            return ToolOutput(answer.read().decode(), reward=0.0, finished=True)
'''


class Judge(BaseHTTPRequestHandler):
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"bad")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[dict[str, str]]:
    (tmp_path / "judged.py").write_text(CODE)
    Judge.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"JUDGE": f"http://127.0.0.1:{server.server_port}/"}
    server.shutdown()
    server.server_close()


def test_the_number_of_episodes_is_announced_and_kept(judge: dict[str, str], tmp_path: Path) -> None:
    done = run("test", "judged.py", "--json", "--episodes", "20", cwd=tmp_path, env=judge)
    announced = re.search(r"^judged: plays up to (\d+) episodes$", done.err, re.MULTILINE)
    assert announced, done.err
    (report,) = done.json
    assert len(Judge.asked) <= report["figures"]["episodes"] <= int(announced[1])


def test_episodes_are_bounded(judge: dict[str, str], tmp_path: Path) -> None:
    done = run("test", "judged.py", "--json", "--max-episodes", "7", cwd=tmp_path, env=judge)
    assert "judged: plays up to 7 episodes" in done.err
    (report,) = done.json
    assert report["figures"]["episodes"] == 7
    assert 0 < len(Judge.asked) < 7
    assert report["findings"] == []
    assert report["not_tried"]["more"] == "--max-episodes 7"
    assert report["not_tried"]["leftovers and memory"] == "--max-episodes 7"
