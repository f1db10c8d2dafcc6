"""Routers before servers that something else started: ours, HAProxy, nginx. One set of tests for all."""

import http.client
import re
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ors import Limits, Server
from ors.client import ORS
from tests.support.commands import refused, running
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("routers")]

ROOT = Path(__file__).parents[2]
KINDS = ["ors", "haproxy", "nginx"]
NGINX = """\
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{routes}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def configuration(kind: str, urls: list[str], port: int) -> str:
    """The configuration on the page of the guide, for these servers instead of its own."""
    page = (ROOT / "docs" / "guides" / "proxies.md").read_text()
    block: str
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    addresses = {f"10.0.0.{n}:8080": urlsplit(url).netloc for n, url in enumerate(urls, 1)}
    listens = {"bind *:8080": f"bind 127.0.0.1:{port}", "listen 8080;": f"listen 127.0.0.1:{port};"}
    for written, real in (addresses | listens).items():
        assert written in block or written in listens
        block = block.replace(written, real)
    assert str(port) in block
    return block


@contextmanager
def proxying(kind: str, urls: list[str], folder: Path) -> Iterator[Raw]:
    """A foreign proxy with the configuration of the guide."""
    program = shutil.which(kind) or shutil.which(f"/usr/sbin/{kind}")
    if program is None:
        pytest.skip(f"{kind} is not installed: apt-get install {kind.replace('nginx', 'nginx-light')}")
    port = free_port()
    routes = configuration(kind, urls, port)
    url = f"http://127.0.0.1:{port}"
    config = folder / f"{kind}.conf"
    config.write_text(NGINX.format(folder=folder, routes=routes) if kind == "nginx" else routes)
    command = [program, "-c", str(config)] if kind == "nginx" else [program, "-db", "-f", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with ORS(url) as client:
            client.health()
        yield Raw(url)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    limits = Limits(ping_seconds=0.05)
    with ExitStack() as stack:
        yield [stack.enter_context(serving(Server([Lab], slot=n, limits=limits))) for n in range(3)]


@pytest.fixture(scope="module", params=KINDS)
def router(
    request: pytest.FixtureRequest, servers: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Raw]:
    if request.param == "ors":
        words = [word for url in servers for word in ("--to", url)]
        with running("route", *words, "--port", "0", env={"PYTHONUNBUFFERED": "1"}) as routing:
            yield Raw(routing.line(r"Routing on (http://\S+)")[1])
    else:
        with proxying(request.param, servers, tmp_path_factory.mktemp(request.param)) as made:
            yield made


def created(router: Raw, task: dict[str, object] | None = None) -> str:
    sid = str(router.post("/create_session").json()["sid"])
    answer = router.post("/create", {"task_spec": task or {}}, sid=sid)
    assert answer.status == 200, answer
    return sid


def test_sessions_of_all_servers_are_found(router: Raw, servers: list[str]) -> None:
    sids = [created(router, {"n": n}) for n in range(24)]
    assert {int(sid[:4], 16) for sid in sids} == {0, 1, 2}
    for n, sid in enumerate(sids):
        assert router.get("/lab/prompt", sid=sid).json()[0]["text"] == f"task {n}"
        assert Raw(servers[int(sid[:4], 16)]).post("/ping", sid=sid).status == 200
        assert router.post("/delete", sid=sid).status == 200
        assert router.post("/ping", sid=sid).status == 410


def test_ids_that_clients_made_are_found_again(router: Raw) -> None:
    for n in range(8):
        sid = f"abc-{uuid.uuid4().hex}"
        assert router.post("/create", {"task_spec": {"n": n}}, sid=sid).status == 200
        assert router.post("/create", {"task_spec": {}}, sid=sid).status == 400
        for _ in range(3):
            assert router.get("/lab/prompt", sid=sid).json()[0]["text"] == f"task {n}"


def test_forks_are_found_where_the_first_one_lives(router: Raw) -> None:
    for sid in [created(router, {"n": n}) for n in range(4)]:
        forks = router.post("/-/fork", {"n": 2}, sid=sid).json()["sids"]
        assert {fork[:4] for fork in forks} == {sid[:4]}
        first = router.get("/lab/prompt", sid=sid).body
        assert [router.get("/lab/prompt", sid=fork).body for fork in forks] == [first, first]


def test_a_stream_opens_at_once_and_pings_pass(router: Raw) -> None:
    id = uuid.uuid4().hex
    sid = created(router, {"id": id})
    with router.opened(sid, "hold") as call:
        assert Lab.gates[f"{id}.held"].wait(20)
        assert call.response.read1(100).startswith(b":")
        Lab.gates[f"{id}.hold"].set()
        assert call.rest().events()[-1][0] == "end"


def test_large_results_and_large_inputs_pass(router: Raw) -> None:
    text = "0123456789 " * 200_000
    result = router.call(created(router), "echo", {"text": text}).result()
    assert result["output"]["blocks"][0]["text"] == text


def test_discovery_is_answered_by_any_server(router: Raw) -> None:
    assert router.get("/list_environments").json() == ["lab"]
    assert router.post("/lab/num_tasks", {"split": "train"}).json() == {"num_tasks": 5}
    assert router.get("/health").status == 200
    assert router("HEAD", "/health").status == 200
    assert router.get("/lab/nothing").status == 404


def test_a_whole_episode_of_our_client(router: Raw) -> None:
    with ORS(router.url) as client, client.environment("lab").session(split="train", index=1) as session:
        assert session.call_tool("echo", {"text": "hi"}).blocks[0].text == "hi"  # type: ignore[union-attr]


def test_a_router_that_is_killed_costs_nothing(servers: list[str]) -> None:
    words = [word for url in servers for word in ("--to", url)]
    id = uuid.uuid4().hex
    with running("route", *words, "--port", "0", env={"PYTHONUNBUFFERED": "1"}) as first:
        router = Raw(first.line(r"Routing on (http://\S+)")[1])
        sid = created(router, {"id": id})
        with router.opened(sid, "hold") as call:
            assert Lab.gates[f"{id}.held"].wait(20)
            first.process.kill()
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                call.rest().events()
    with running("route", *words, "--port", "0", env={"PYTHONUNBUFFERED": "1"}) as second:
        router = Raw(second.line(r"Routing on (http://\S+)")[1])
        Lab.gates[f"{id}.hold"].set()
        assert router.call(sid, "hold", task_id=call.task_id).result()["ok"] is True
    assert Lab.counts[f"{id}.hold"] == 1


def test_without_servers_the_router_says_not_now() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with running("route", "--to", url, "--port", "0", env={"PYTHONUNBUFFERED": "1"}) as routing:
        router = Raw(routing.line(r"Routing on (http://\S+)")[1])
        for answer in (router.post("/create_session"), router.get("/list_environments")):
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert router.get("/-/health/live").status == 200
        assert router.get("/-/health/ready").status == 503


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Give at least one server"),
        (["--to", "nothing"], "'nothing' is not a URL"),
        (["--to", "a:1", "--to", "http://a:1"], "given twice"),
        (["--to", "http://"], "'http://' is not a URL"),
        (["--to", "http://a:99999"], "a port up to 65535"),
        (["--to", "http://a:0"], "not a URL with a host and a port"),
        (["--to", "http://a..b"], "not a URL with a host"),
        (["--to", "http://[::1"], "not a URL with a host"),
    ],
)
def test_wrong_servers_are_one_line(words: list[str], said: str) -> None:
    done = refused("route", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1
