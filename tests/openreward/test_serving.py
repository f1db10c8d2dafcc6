"""`ors sandboxes`: what clients of openreward ask of its server, by requests written by hand."""

import asyncio
import base64
import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ors import Limits, Server
from ors.openreward.hosting import Hosting, SandboxSettings
from ors.openreward.serving import sandbox_server
from ors.sandbox import Sandbox
from tests.support.commands import running
from tests.support.live_server import app_of, serving
from tests.support.raw_http import Answer, Raw, Stream, as_body, as_headers
from tests.support.waiting import wait_until

KEY, OTHER = {"X-API-Key": "first"}, {"X-API-Key": "second"}
SETTINGS = {"environment": "a/b", "image": "python:3", "machine_size": "0.5:0.5", "network": None}
PROXY = "exec 3<>/dev/tcp/127.0.0.1/3128;"
CHUNK = 4 * 2**20 - 64 * 2**10


class Client(Raw):
    """A client with a key, and its sandbox."""

    sid = ""

    def __call__(self, method: str, path: str, body: Any = None, **kwargs: Any) -> Answer:
        return super().__call__(method, path, body, **{"sid": self.sid or None, "headers": KEY, **kwargs})

    def created(self, **settings: Any) -> str:
        answer = self.post("/create_sandbox", {**SETTINGS, **settings}, sid=None)
        assert answer.status == 200, answer
        assert answer.result() == {"sid": answer.events()[0][1]}  # the task id is the sandbox's
        return str(answer.result()["sid"])

    def run(self, cmd: str, **more: Any) -> tuple[int, str, bool]:
        body = {"cmd": cmd, "timeout_s": 30, "max_bytes": 50_001, "shell": "/bin/bash", **more}
        answer = self.post("/run", body)
        assert answer.status == 200, answer
        result = answer.result()
        assert set(result) == {"return_code", "output", "timed_out"}
        return result["return_code"], base64.b64decode(result["output"]).decode(), result["timed_out"]

    def upload(self, path: str, data: bytes) -> Answer:
        for offset in range(0, len(data) or 1, CHUNK):
            target = f"/write_file?path={path}&offset={offset}{'' if offset else '&mkdirs=1'}"
            answer = self.post(target, data[offset : offset + CHUNK])
            assert (answer.status, answer.json()) == (200, {})
        return self.post(f"/write_file?path={path}&commit=1&size={len(data)}")

    def download(self, path: str, size: int) -> bytes:
        parts = []
        for offset in range(0, size, CHUNK):
            length = min(CHUNK, size - offset)
            answer = self.post(f"/read_file?path={path}&offset={offset}&length={length}")
            assert answer.headers["x-file-size"] == str(size)
            parts.append(answer.body)
        return b"".join(parts)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    hosting, limits = Hosting(host_root=True, memory=2**30), Limits(sessions=3, ping_seconds=0.05)
    with serving(sandbox_server(hosting, limits=limits, api_keys=["a=first", "b=second"])) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    client = Client(url)
    client.sid = client.created()
    yield client
    assert client.post("/delete_session").status == 200


def test_a_command_has_one_stream_of_output_its_status_and_its_limits(client: Client) -> None:
    assert client.run("echo out; echo err >&2; exit 3") == (3, "out\nerr\n", False)
    assert client.run("cat; kill -9 $$") == (137, "", False)  # standard input is at its end
    late = [client.run("echo begun; sleep 60", timeout_s=0.3)]
    while late[-1][1] == "":  # a busy machine takes longer to begin
        late.append(client.run("echo begun; sleep 60", timeout_s=0.3 * 2 ** len(late)))
    assert (late[-1], {each[::2] for each in late}) == ((124, "begun\n", True), {(124, True)})
    # It is not killed for what it prints: the agent's next commands rely on what it does afterwards.
    assert client.run("yes | head -c 300000; echo -n whole > /workspace/mark", max_bytes=4) == (
        0,
        "y\ny\n",
        False,
    )
    assert client.run("cat /workspace/mark") == (0, "whole", False)
    assert client.run("echo gone; sleep 60 & echo done") == (0, "gone\ndone\n", False)


def test_a_command_of_nine_megabytes_runs_and_output_over_the_limit_is_refused(client: Client) -> None:
    text = base64.b64encode(os.urandom(6_750_000)).decode()
    digest = hashlib.sha256(text.encode() + b"\n").hexdigest()
    assert client.run(f"echo '{text}' | sha256sum; wc -c") == (0, f"{digest}  -\n0\n", False)
    answer = client.post("/run", {"cmd": "head -c 20000000 /dev/zero", "timeout_s": None, "max_bytes": None})
    assert "over the limit of 16777216 bytes" in answer.error()


def test_files_arrive_in_chunks_and_are_committed_by_size_and_digest(client: Client) -> None:
    data, path = os.urandom(9_000_000), "/workspace/new/folder/a%20b"
    assert client.upload(path, data).json() == {"sha256": hashlib.sha256(data).hexdigest()}
    again = client.post(f"/write_file?path={path}&commit=1&size={len(data)}")  # its answer was lost
    assert again.json() == {"sha256": hashlib.sha256(data).hexdigest()}
    assert client.post(f"/stat_file?path={path}").json() == {"size": len(data)}
    told = client.post(f"/stat_file?path={path}&sha256=1").json()
    assert told == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert client.download(path, len(data)) == data
    assert client.post(f"/read_file?path={path}&offset={len(data) + 1}&length=1").status == 416
    assert client.run("ls -A /workspace/new/folder") == (0, "a b\n", False)
    assert client.upload("/workspace/empty", b"").json() == {"sha256": hashlib.sha256().hexdigest()}


def test_chunks_that_look_like_many_values_of_json_are_not_parsed(client: Client) -> None:
    def sent(number: int) -> int:
        return client.post(f"/write_file?path=/workspace/{number}&offset=0", b"," * CHUNK).status

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(sent, range(16))) == {200}


def test_what_is_no_regular_file_or_does_not_fit_is_refused_and_not_with_a_5xx(client: Client) -> None:
    client.run("ln -s /etc/passwd /workspace/link; mkfifo /workspace/pipe; echo hi > /workspace/file")
    for path, status, text in (
        ("/workspace/link", 400, "symlink"),
        ("/workspace/pipe", 400, "regular"),
        ("/workspace", 400, "regular"),
        ("/dev/null", 400, "regular"),
        ("/workspace/none", 404, "no such file"),
    ):
        for request in (f"/stat_file?path={path}", f"/read_file?path={path}&offset=0&length=1"):
            answer = client.post(request)
            assert (answer.status, text in answer.detail) == (status, True), (request, answer)
    for request, text in (
        ("/write_file?path=/workspace/x&offset=5", "have not arrived"),
        ("/write_file?path=/workspace/file&commit=1&size=4", "has 3 bytes, not 4"),
        ("/write_file?path=/workspace&commit=1&size=1", "bytes, not 1"),
        ("/write_file?path=/proc/x&offset=0", "/proc/x"),
        ("/stat_file?path=%00", "zero byte"),
        ("/run", "cmd"),
        ("/set_network", "without network="),
    ):
        answer = client.post(request, b"data" if "write" in request else b"{}")
        assert (answer.status, text in answer.detail) == (400, True), answer
    assert client.run("cat /workspace/file") == (0, "hi\n", False)
    client.run("cat /dev/zero > /workspace/full")
    full = client.post("/write_file?path=/workspace/more&offset=0", bytes(2**20))
    assert (full.status, "No space left" in full.detail) == (400, True), full


def test_a_cut_stream_is_taken_up_by_its_task_id_and_runs_once(client: Client) -> None:
    connection = client.connection()
    command = {
        "cmd": "mkfifo /workspace/go; echo ran >> /workspace/log; cat /workspace/go",
        "timeout_s": 30,
        "max_bytes": 9,
    }
    connection.request("POST", "/run", as_body(command), as_headers(client.sid, KEY))
    stream = Stream(connection.getresponse())
    assert stream.response.read1(100).startswith(b": ping")  # it is kept alive meanwhile
    connection.close()
    opened = threading.Thread(
        target=client.run, args=["until [ -p /workspace/go ]; do :; done; echo hi > /workspace/go"]
    )
    opened.start()
    assert (
        base64.b64decode(client.post("/run", {**command, "task_id": stream.task_id}).result()["output"])
        == b"hi\n"
    )
    opened.join()
    assert client.run("cat /workspace/log") == (0, "ran\n", False)
    assert client.post("/run", {**command, "task_id": "other"}).error() == "unknown task_id"
    resumed = client.post("/create_sandbox", {**SETTINGS, "task_id": client.sid})
    assert resumed.result() == {"sid": client.sid}


def test_a_sandbox_belongs_to_its_key_and_is_gone_after_its_deletion(url: str) -> None:
    client = Client(url)
    client.sid = client.created()
    assert client.post("/ping").status == 200
    assert client.post("/run", {"cmd": "true"}, headers={}).status == 401
    for path in ("/run", "/ping", "/delete_session", "/stat_file?path=/workspace"):
        assert client.post(path, {"cmd": "true"}, headers=OTHER).status == 404
    assert client.post("/delete_session").status == 200
    for path in ("/run", "/ping", "/stat_file?path=/workspace", "/write_file?path=/workspace/x&offset=0"):
        assert client.post(path, {"cmd": "true"}).status == 410


class Gated(Hosting):
    """Opens sandboxes when the test allows it, as if it had to pull their image first."""

    gate: ClassVar = threading.Event()

    async def open(self, settings: SandboxSettings) -> Sandbox:
        await asyncio.to_thread(self.gate.wait)
        return await super().open(settings)


def test_a_creation_may_take_longer_than_a_client_may_be_silent() -> None:
    server = sandbox_server(Gated(host_root=True), limits=Limits(idle_seconds=60, ping_seconds=0.05))
    with serving(server) as url, ThreadPoolExecutor(1) as pool:
        client = Client(url)
        connection = client.connection()
        connection.request("POST", "/create_sandbox", as_body(SETTINGS), KEY)
        stream = Stream(connection.getresponse())
        assert stream.response.read1(100).startswith(b": ping")
        (session,) = app_of(server).sessions
        reaped(server, session.seen + 1000)
        resumed = pool.submit(client.post, "/create_sandbox", {**SETTINGS, "task_id": stream.task_id})
        Gated.gate.set()
        assert stream.rest().result() == resumed.result().result() == {"sid": session.sid}
        connection.close()


def reaped(server: Server, now: float) -> int:
    """Lets a server look for sessions that have expired, at a time of the test's; how many are left."""
    done: Future[int] = Future()

    def reap() -> None:
        app_of(server).sessions.reap(now)
        done.set_result(len(app_of(server).sessions))

    loop = app_of(server).shared.loop
    assert loop is not None
    loop.call_soon_threadsafe(reap)
    return done.result(20)


def test_a_sandbox_that_has_died_is_told_as_410_and_frees_its_place() -> None:
    server = sandbox_server(Hosting(host_root=True), limits=Limits(sessions=1))
    with serving(server) as url:
        client = Client(url)
        client.sid = client.created()
        (session,) = app_of(server).sessions
        assert session.episode is not None
        os.killpg(session.episode.sandbox.cell.pid, signal.SIGKILL)
        while (answer := client.post("/run", {"cmd": "true"})).status == 200:
            assert "ended" in answer.error()
        assert (answer.status, "ended the sandbox" in answer.detail) == (410, True)
        client.post("/delete_session")
        client.sid = client.created()
        assert client.run("echo new") == (0, "new\n", False)


def test_a_client_without_pings_loses_its_sandbox_even_while_a_command_runs() -> None:
    server = sandbox_server(Hosting(host_root=True), limits=Limits(idle_seconds=60))
    with serving(server) as url:
        client = Client(url)
        client.sid = client.created()
        connection = client.connection()
        connection.request("POST", "/run", as_body({"cmd": "sleep 600"}), as_headers(client.sid, KEY))
        stream = Stream(connection.getresponse())
        (session,) = app_of(server).sessions
        assert session.episode is not None
        group = Path(f"/proc/{session.episode.sandbox.cell.pid}")
        assert [reaped(server, session.seen + seconds) for seconds in (59, 61)] == [1, 0]
        assert "Session expired" in stream.rest().events()[-1][1]
        connection.close()
        assert client.post("/ping").status == 410
    assert not group.exists()


def test_the_hosts_of_a_policy_are_reached_until_it_is_replaced() -> None:
    rules = [{"action": each, "host": "127.0.0.1"} for each in ("allow", "deny")]  # the first one counts
    with serving(sandbox_server(Hosting(host_root=True, open_network=True))) as url:
        client = Client(url)
        client.sid = client.created(network={"rules": [], "presets": [], "enforce": True})
        ask = PROXY + r" printf 'CONNECT 127.0.0.1:{} HTTP/1.1\r\n\r\n' >&3; head -1 <&3"
        assert "403" in client.run(ask.format(443))[1]
        assert client.post("/set_network", {"rules": rules, "presets": [], "enforce": True}).json() == {}
        assert "502" in client.run(ask.format(443))[1]  # nothing listens there
        assert "403" in client.run(ask.format(8443))[1]
        assert client.post("/set_network", {"rules": []}).json() == {}
        assert "403" in client.run(ask.format(443))[1]
        assert client.post("/delete_session").status == 200


def test_what_a_server_does_not_have_is_refused_by_name(url: str) -> None:
    client = Client(url)
    for settings, text in (
        ({"machine_size": "nvidia-l4"}, "GPU"),
        ({"machine_size": "1:2"}, "at most 1 GB"),
        ({"machine_size": "3:5"}, "machine_size"),
        ({"sidecars": [{"name": "db", "image": "postgres"}]}, "sidecars"),
        ({"host_aliases": [{"ip": "127.0.0.1", "hostnames": ["db"]}]}, "host_aliases"),
        ({"bucket_config": {"mount_path": "/data"}}, "--data"),
        ({"block_network": True, "network": {"rules": []}}, "exclusive"),
        ({"network": {"rules": [{"action": "allow", "host": "a.test"}]}}, "--open-network"),
        ({"network": {"rules": [{"action": "deny", "host": "*.a.test"}]}}, "whole host"),
        ({"network": {"rules": [{"action": "allow", "host": "a", "path": "/x"}]}}, "whole host"),
        ({"network": {"presets": ["pypi"]}}, "presets"),
        ({"network": {"enforce": False}}, "enforce"),
    ):
        answer = client.post("/create_sandbox", {**SETTINGS, **settings})
        assert (answer.status, text in answer.detail) == (400, True), answer
    secrets = base64.b64encode(b'{"OPENAI_API_KEY": {"value": "x"}, "api_key": {"value": "y"}}').decode()
    answer = client.post("/create_sandbox", SETTINGS, headers={**KEY, "X-Secrets": secrets})
    assert (answer.status, "OPENAI_API_KEY" in answer.detail, "api_key" in answer.detail) == (
        400,
        True,
        False,
    )
    sids = [client.created() for _ in range(3)]
    full = client.post("/create_sandbox", SETTINGS)
    assert (full.status, full.headers["retry-after"], "limit" in full.detail) == (429, "1", True)
    for sid in sids:
        client.post("/delete_session", sid=sid)


def test_nothing_is_left_when_the_server_is_killed() -> None:
    with running("sandboxes", "--port", "0", "--host-root", "--no-inspector") as server:
        client = Client(server.url())
        client.sid = client.created()
        seconds = str(86400 + os.getpid())
        client.run(f"setsid sleep {seconds} &")
        wait_until(lambda: processes_with(seconds), "the program runs")
        server.stop(signal.SIGKILL)
        wait_until(lambda: not processes_with(seconds), "the program has ended")


def processes_with(seconds: str) -> int:
    """How many programs on this machine sleep for so long."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += (folder / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode()
    return found
