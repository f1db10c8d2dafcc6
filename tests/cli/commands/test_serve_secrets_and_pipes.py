"""A served environment and what happens to servers: pipes that nobody reads, secrets in odd places."""

import base64
import json
import os
import signal
import socket
import subprocess
import uuid
from pathlib import Path

import pytest

from ors import Server
from ors.server.connections import connection as server_connection
from tests.support import SUPPORT
from tests.support.commands import ORS as COMMAND
from tests.support.commands import PATIENCE, Running, run, running, variables
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw

pytestmark = pytest.mark.long

LAB = f"{SUPPORT / 'environments.py'}:Lab"
KEY = "key-4f1c0a77e2"
SECRETS = {"in_body": "body-93d1b0e6c8", "in_header": "header-b7702d5f11"}
EVERY_SECRET = (KEY, *SECRETS.values())


@pytest.mark.parametrize("how", [(), ("--log-json",)], ids=["text", "json"])
def test_a_log_of_everything_into_a_pipe_that_nobody_reads_freezes_nothing(how: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*COMMAND, "serve", LAB, "--port", "0", "--log-level", "debug", *how],
        env=variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    raw = Raw(Running(process).url())
    for _ in range(200):
        sid = raw.session()
        # A line of the log for each of these, and a kilobyte of traceback: a pipe holds 64.
        assert raw.call(sid, "echo", {"text": "x"}).result()["ok"]
        assert raw.call(sid, "boom", {"text": "x"}).error()
        assert raw.post("/delete", sid=sid).status == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    process.communicate()


def secrets_header(value: str) -> str:
    return base64.b64encode(json.dumps({"in_header": {"value": value}}).encode()).decode()


def everything_that_can_show_a_secret(raw: Raw) -> list[bytes]:
    """What the server answers when secrets are where they should be, and where they should not."""
    key = {"X-API-Key": KEY}
    given = {**key, "X-Secrets": secrets_header(SECRETS["in_header"])}
    shown = []
    for fail in ("", "setup"):
        sid = uuid.uuid4().hex
        task = {"fail": fail}
        secrets = {"in_body": SECRETS["in_body"], "key": SECRETS["in_body"]}
        shown.append(raw.post("/create", {"task_spec": task, "secrets": secrets}, sid=sid, headers=given))
        shown.append(raw.get("/lab/prompt", sid=sid, headers=key))
        shown.append(raw.call(sid, "secret", headers=key))
        shown.append(raw.call(sid, "echo", {"text": [SECRETS["in_body"]]}, headers=key))
        shown.append(raw.post("/create", {"task_spec": {}, "secrets": {"a": [KEY]}}, sid="x", headers=given))
    shown.append(raw.post("/create", {"task_spec": {}}, sid="x", headers={**key, "X-Secrets": KEY}))
    shown.append(raw.post("/create", b'{"secrets": "' + KEY.encode(), sid="x", headers=key))
    shown.append(raw.get("/lab/tools", headers={"X-API-Key": KEY + "x", "Authorization": f"Bearer {KEY}"}))
    shown.append(raw.get("/lab/tools", headers={"Authorization": f"Basic {KEY}"}))
    shown.append(raw.get("/health", headers={**key, "Origin": f"http://{KEY}"}))
    shown.append(raw.get("/-/sessions", headers=key))
    shown.append(raw.get("/-/metrics", headers=key))
    assert any(answer.status == 401 for answer in shown)
    return [answer.body + str(answer.headers).encode() for answer in shown]


@pytest.mark.parametrize("errors", ["none", "exception", "stacktrace"])
def test_secrets_and_keys_are_in_no_log_error_or_metric(errors: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"team={KEY}\n")
    words = ("serve", LAB, "--port", "0", "--log-level", "debug", "--api-key-file", str(keys))
    with running(*words, "--return-errors", errors) as server:
        shown = everything_that_can_show_a_secret(Raw(server.url()))
        done = server.stop()
    assert done.code == 0
    assert "call of 'secret' failed (environment)" in done.err  # the log was there to be searched
    for secret in EVERY_SECRET:
        assert all(secret.encode() not in text for text in (*shown, done.out.encode(), done.err.encode()))


def established(server_port: int, client_port: int) -> bool:
    """Whether the server's end of a connection is open, by the kernel's own table."""
    rows = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    wanted = (f":{server_port:04X}", f":{client_port:04X}", "01")
    return any((local[-5:], remote[-5:], state) == wanted for local, remote, state in rows)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs the kernel's table of connections")
def test_a_stopped_reader_is_cut_off_and_its_result_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "REQUEST_SECONDS", 0.5)
    body = json.dumps({"name": "echo", "input": {"text": "x" * 12_000_000}}).encode()
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        sid = raw.session()
        head = f"POST /lab/call HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Session-ID: {sid}\r\nIdempotency-Key: k\r\n"
        with socket.create_connection((raw.host, raw.port), 20) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            while established(raw.port, connection.getsockname()[1]):
                pass
            received = 0
            while part := connection.recv(2**20):
                received += len(part)
            assert received < 12_000_000
        again = raw.call(sid, "echo", {}, headers={"Idempotency-Key": "k"})
        assert len(again.result()["output"]["blocks"][0]["text"]) == 12_000_000


LOOKING = """\
import os, subprocess
from ors import Environment, TextBlock, ToolOutput, tool

LOOK = '''env
p=$$
while [ "$p" -gt 1 ]; do
  tr "\\\\0" "\\\\n" < /proc/$p/environ
  for f in /proc/$p/fd/*; do readlink "$f"; done
  p=$(awk "{print \\$4}" /proc/$p/stat)
  [ "$p" = "$STOP" ] && break
done
cat'''

class Looking(Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]
    @classmethod
    def list_tasks(cls, split):
        return [{}]
    def get_prompt(self):
        return [TextBlock(text="Look.")]
    @tool
    def look(self) -> ToolOutput:
        "Shows what a program sees of its environment, and of its parents'."
        done = subprocess.run(LOOK, shell=True, capture_output=True, text=True)
        return ToolOutput(blocks=[TextBlock(text=done.stdout)])
    @tool
    def inherit(self) -> ToolOutput:
        "Shows what a program inherits."
        done = subprocess.run("env", capture_output=True, text=True)
        return ToolOutput(blocks=[TextBlock(text=done.stdout)])
"""


@pytest.fixture
def looking(tmp_path: Path) -> str:
    (tmp_path / "looking.py").write_text(LOOKING)
    return str(tmp_path / "looking.py")


@pytest.mark.parametrize("how", [(), ("--workers", "2"), ("--reload",)], ids=["alone", "workers", "reload"])
def test_programs_of_tools_do_not_see_the_keys_of_the_server(looking: str, how: tuple[str, ...]) -> None:
    env = {"ORS_API_KEYS": f"other=key-of-another,{KEY} private", "PATIENT": "seen", "STOP": str(os.getpid())}
    with running("serve", looking, "--port", "0", *how, env=env) as server:
        raw, key = Raw(server.url()), {"X-API-Key": KEY}
        assert raw.post("/create", {"task_spec": {}}, sid="look", headers=key).status == 200
        seen = str(raw.call("look", "look", env="looking", headers=key).result())
        assert raw.get("/list_environments", headers={"X-API-Key": "key-of-another"}).status == 200
        assert raw.get("/list_environments", headers={"X-API-Key": "key1"}).status == 401
    assert seen.count("PATIENT=seen") > 1  # its own environment, and that of a parent at least
    assert KEY not in seen
    assert "key-of-another" not in seen


def test_programs_of_tools_do_not_inherit_what_a_command_was_given_for_its_server(looking: str) -> None:
    given = {"ORS_API_KEY": KEY, "ORS_CALL_SECRET": f"a={KEY}", "ORS_API_KEYS": KEY}
    done = run("call", looking, "inherit", env={**given, "PATIENT": "seen"})
    assert done.code == 0, done.err
    assert "PATIENT=seen" in done.out
    assert KEY not in done.out
