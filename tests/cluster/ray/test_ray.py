"""Servers as Ray actors, on a real cluster of three raylets."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import ors
from tests.compat.scripts.abacus import made as abacus
from tests.compat.test_pairings import check
from tests.support import environments as lab
from tests.support.call_ledger import Ledger
from tests.support.commands import run, running
from tests.support.environments import Lab
from tests.support.raw_http import Raw
from tests.support.ray_cluster import Fleet, add_node, clustered, family, frozen, gone, raylet, titled, until
from tests.support.side_venvs import OPENREWARD, ORS_SDK, SCRIPTS, Package, environ
from tests.support.traced_environment import Yard

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("default"),
]
PER_HOST = 8
PAGE = "http://page.example"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray") / "traces"


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


@pytest.fixture(scope="module")
def fleet(traces: Path, port: int) -> Iterator[Fleet]:
    # Not before it is needed: to import Ray takes seconds, in every process that collects tests.
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'ors-kit[ray]'")
    from ors.cluster.ray import deploy

    with clustered() as cluster:
        deployment = deploy(
            [abacus(ors), Lab, Yard],
            hosts=3,
            sessions_per_host=PER_HOST,
            calm_seconds=0.1,
            routers=2,
            port=port,
            host="127.0.0.1",
            num_cpus=0.45,  # two fit on a node: three are never all on one
            limits=ors.Limits(grace_seconds=0.1),
            cors_origins=[PAGE],
            runtime_env={"env_vars": {"YARD": str(traces)}},
        )
        try:
            found = Fleet(cluster, deployment)
            found.settled()
            yield found
        finally:
            deployment.stop()


@pytest.fixture
def front(fleet: Fleet, port: int) -> Raw:
    """The routers, once all is well again after the last test."""
    while len(fleet.cluster.worker_nodes) < 2:
        add_node(fleet.cluster)
    fleet.deployment.scale(3)
    fleet.settled()
    made = Raw(f"http://127.0.0.1:{port}")
    until(lambda: made.get("/-/metrics").body.decode().count("ors_calls_running{") == 3)
    return made


def test_every_host_serves_all_and_routers_listen_on_one_port(fleet: Fleet, front: Raw) -> None:
    assert fleet.deployment.urls() == [front.url]
    assert len(fleet.deployment.routers) == 2
    assert {row.slot for row in fleet.rows} == {0, 1, 2}
    assert len({row.node for row in fleet.rows}) > 1
    entries = [front, *(Raw(row.url) for row in fleet.rows)]
    for slot in (0, 1, 2):
        sid = fleet.session(front, slot)
        assert {one.call(sid, "nothing").result()["ok"] for one in entries} == {True}
        assert entries[2].post("/delete", sid=sid).status == 200


def test_forks_live_on_the_host_of_the_first_session(fleet: Fleet, front: Raw) -> None:
    for slot in (0, 1, 2):
        sid = fleet.session(front, slot)
        forks = front.post("/-/fork", {"n": 2}, sid=sid).json()["sids"]
        assert [int(fork[:4], 16) for fork in forks] == [slot, slot]
        assert [front.call(fork, "nothing").result()["ok"] for fork in forks] == [True, True]
        for each in (sid, *forks):
            assert front.post("/delete", sid=each).status == 200


def test_a_web_page_that_may_call_hosts_may_call_routers(fleet: Fleet, front: Raw) -> None:
    for one in (front, Raw(fleet.rows[0].url)):
        assert one.get("/list_environments", headers={"Origin": PAGE}).status == 200
        assert one.get("/list_environments", headers={"Origin": "http://other.example"}).status == 403


@pytest.mark.parametrize("package", [ORS_SDK, OPENREWARD], ids=lambda package: package.name)
def test_clients_of_the_field_play_unmodified(package: Package, front: Raw) -> None:
    command = [package.python(), str(SCRIPTS / "their_episode.py"), package.name, front.url]
    urls = environ(OPENREWARD_API_URL=front.url, OPENREWARD_SESSION_URL=front.url)
    done = subprocess.run(command, env=urls, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout.splitlines()[-1]))


def test_hosts_come_and_go_by_load_and_no_session_is_lost(fleet: Fleet, front: Raw) -> None:
    kept = [fleet.session(front, slot) for slot in (0, 1, 2)]
    fleet.deployment.scale(3, 4)
    more: list[str] = []
    while len(more) < 3 * PER_HOST:
        sid = str(front.post("/create_session").json()["sid"])
        assert front.post("/create", {"env_name": "lab", "task_spec": {}}, sid=sid).status == 200
        more.append(sid)
    fleet.settled(4)
    last = fleet.session(front, 3)
    for sid in more:
        assert front.post("/delete", sid=sid).status == 200
    going = until(lambda: [row for row in fleet.rows if row.retiring])
    for sid in [*kept, last]:
        assert front.call(sid, "nothing").result()["ok"] is True
    for sid in [*kept, last]:
        assert front.post("/delete", sid=sid).status == 200
    until(lambda: going[0].slot not in {row.slot for row in fleet.rows})
    fleet.deployment.scale(3)


def test_hosts_come_and_go_by_command(fleet: Fleet, front: Raw) -> None:
    done = run("hosts", "--ray", fleet.cluster.address, "--scale", "4", "--json")
    assert done.code == 0, done.err
    assert [row["slot"] for row in done.json] == [row.slot for row in fleet.rows]
    until(lambda: len(fleet.rows) == 4)
    new = max(row.slot for row in fleet.rows)
    sid = fleet.session(front, new)
    others = [fleet.session(front, slot) for slot in {row.slot for row in fleet.rows} - {new} for _ in (0, 1)]
    until(lambda: sum(row.sessions for row in fleet.rows) == 7)
    fleet.deployment.scale(3)
    until(lambda: fleet.row(new).retiring)
    assert front.call(sid, "nothing").result()["ok"] is True
    assert front.post("/delete", sid=sid).status == 200
    until(lambda: len(fleet.rows) == 3)
    assert {front.post("/delete", sid=other).status for other in others} == {200}


def test_a_file_is_served_by_command(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(Path(str(lab.__file__)).read_text())
    words = ["serve", f"{tmp_path / 'alone.py'}:Lab", "--ray", fleet.cluster.address, "--hosts", "1"]
    words += ["--num-cpus", "0.2", "--runtime-env", '{"env_vars": {"A": "1"}}']
    assert "serves something" in run(*words, "--host", "127.0.0.1").err
    assert "API" in run(*words).err  # on the addresses of nodes, without a key
    words += ["--host", "127.0.0.1", "--ray-namespace", "second"]
    with running(*words, env={"PYTHONUNBUFFERED": "1"}) as serving:
        raw = Raw(serving.line(r"Serving on (http://\S+)")[1])
        assert serving.line("^lab .*train 5")
        assert raw.call(raw.session(), "nothing").result()["ok"] is True
        assert serving.stop().code == 0


@pytest.fixture
def gpu(fleet: Fleet) -> Iterator[None]:
    """One more node, which has a GPU."""
    node = add_node(fleet.cluster, gpus=1)
    yield
    fleet.cluster.remove_node(node)


@pytest.mark.usefixtures("gpu")
def test_hosts_at_the_start_their_gpus_and_the_log_are_as_the_command_says(fleet: Fleet) -> None:
    import ray

    words = ["--ray", fleet.cluster.address, "--ray-namespace", "second"]
    serve = ["serve", f"{lab.__file__}:Lab", *words, "--host", "127.0.0.1", "--json", "--log-json"]
    serve += ["--num-cpus", "0.2", "--num-gpus", "0.5", "--hosts", "2:3"]
    with running(*serve, env={"PYTHONUNBUFFERED": "1"}) as serving:
        told = json.loads(serving.line("^{.*}$")[0])
        assert [Raw(url).get("/health").status for url in told["urls"]] == [200, 200]
        assert told["environments"][0]["splits"]["train"] == 5
        assert ray.cluster_resources()["GPU"] == 1
        until(lambda: not ray.available_resources().get("GPU"))
        assert run("hosts", *words, "--scale", "1").code == 0
        assert json.loads(serving.errors("^{.*takes no new sessions.*}$")[0])["logger"] == "ors.cluster"
        assert serving.stop().code == 0


def test_why_nothing_is_served_is_one_line(fleet: Fleet, tmp_path: Path) -> None:
    words = ["serve", f"{lab.__file__}:Lab", "--ray", fleet.cluster.address, "--ray-namespace", "third"]
    words += ["--host", "127.0.0.1", "--num-cpus", "0.2"]
    refused = run(*words, "--resource", "memory=1")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "Ray cannot start hosts with these options: ValueError: The resources dictionary" in refused.err
    (tmp_path / "alone.py").write_text(Path(str(lab.__file__)).read_text())
    broken = run(*words, f"{tmp_path / 'alone.py'}:Lab")  # two environments of one name
    assert (broken.code, broken.err.count("\n")) == (3, 1)
    assert broken.err.startswith("Error: A host failed to start: ")


def test_deploy_refuses_what_cannot_be(fleet: Fleet) -> None:
    from ors.cluster.ray import deploy

    with pytest.raises(ValueError, match="a deployment in the namespace 'ors'"):
        deploy([Lab])
    with pytest.raises(ValueError, match="num_cpus must be"):
        deploy([Lab], num_cpus=0, namespace="third")
    with pytest.raises(ValueError, match="hosts must be between"):
        deploy([Lab], hosts=2, min_hosts=3, max_hosts=4, namespace="third")


def test_deploy_without_a_connection_starts_no_cluster() -> None:
    code = "import ray\nfrom ors.cluster.ray import deploy\n"
    code += "try: deploy([])\nexcept RuntimeError as error: print(error, ray.is_initialized())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Not connected to a Ray cluster: call ray.init(address=...) first False\n"


def test_hosts_are_placed_still_after_a_fault(
    fleet: Fleet, front: Raw, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise KeyError("no such node")

    with monkeypatch.context() as patch:
        patch.setattr(fleet.deployment._ray, "place_routers", fail)
        assert failed.wait(20)
    fleet.deployment.scale(4)
    until(lambda: len(fleet.rows) == 4)
    assert "trying again" in caplog.text


def test_a_drained_node_keeps_its_sessions_and_gets_no_new_ones(fleet: Fleet, front: Raw) -> None:
    victim, _ = fleet.on_worker()
    sid = fleet.session(front, victim.slot)
    command = ("hosts", "--ray", fleet.cluster.address, "--drain")
    unknown = run(*command, "nonsense")
    assert (unknown.code, unknown.err) == (3, "Error: 0 nodes have an id that begins with 'nonsense'\n")
    assert run(*command, victim.node[:12]).code == 0
    try:
        until(lambda: fleet.row(victim.slot).retiring)
        fleet.moved(away_from=victim)
        for _ in range(20):
            fresh = str(front.post("/create_session").json()["sid"])
            assert int(fresh[:4], 16) != victim.slot
        assert front.call(sid, "nothing").result()["ok"] is True
        assert front.post("/delete", sid=sid).status == 200
        until(lambda: all(row.node != victim.node for row in fleet.rows))
    finally:
        fleet.deployment.undrain(victim.node)


def test_a_killed_host_is_told_and_comes_back_as_another(fleet: Fleet, front: Raw) -> None:
    first, victim = fleet.rows[0], fleet.rows[1]
    sid, kept = fleet.session(front, victim.slot), fleet.session(front, first.slot)
    with front.opened(sid, "stay") as call:
        os.kill(fleet.pid(victim.slot), signal.SIGKILL)
        assert call.rest().error().startswith("Session lost: ")
    late = front.call(sid, "nothing")  # 410, unless this router has not heard of it yet
    assert late.status == 410 or late.error().startswith("Session lost: ")
    assert front.call(kept, "nothing").result()["ok"] is True
    assert fleet.back(victim).incarnation > victim.incarnation
    fleet.settled()
    assert front.post("/ping", sid=sid).status == 410
    assert front.post("/delete", sid=kept).status == 200


def test_a_killed_router_costs_nothing_and_comes_back_at_its_port(fleet: Fleet, front: Raw) -> None:
    pids = {node: fleet.process(actor) for node, actor in fleet.deployment.routers.items()}
    sid = fleet.session(front, fleet.rows[0].slot)
    for node, pid in pids.items():
        os.kill(pid, signal.SIGKILL)
        gone(pid)
        assert until(lambda: front.call(sid, "nothing").result()["ok"])
        assert fleet.process(fleet.deployment.routers[node]) != pid
    assert front.post("/delete", sid=sid).status == 200


def test_a_killed_directory_costs_nothing(fleet: Fleet, front: Raw) -> None:
    until(lambda: fleet.deployment._ray._targets.hosts == (3, 3))  # it looks twice a second
    pid = titled("ray::Directory")
    sids = [fleet.session(front, row.slot, "yard") for row in fleet.rows]
    entries = [front, *(Raw(row.url) for row in fleet.rows)]
    with ExitStack() as stack:
        given = {"name": "long", "seconds": 5.0}
        calls = [
            stack.enter_context(one.opened(sid, "wait", given, env="yard"))
            for one, sid in zip(entries, sids, strict=False)
        ]
        os.kill(pid, signal.SIGKILL)
        gone(pid)
        assert titled("ray::Directory") != pid
        for call in calls:
            assert call.rest().result()["ok"] is True
    fleet.settled()
    assert fleet.look()[1].hosts == (3, 3)
    for sid in sids:
        assert front.post("/delete", sid=sid).status == 200


def test_a_raylet_that_dies_takes_its_host_along(fleet: Fleet, front: Raw) -> None:
    victim, node = fleet.on_worker()
    pid = fleet.pid(victim.slot)
    one = Raw(fleet.away(victim.slot).url)
    sid = fleet.session(one, victim.slot)
    with one.opened(sid, "stay") as call:
        os.kill(raylet(node), signal.SIGKILL)
        assert call.rest().error().startswith("Session lost: ")
    gone(pid)  # or it would live on beside its replacement
    assert one.post("/ping", sid=sid).status == 410
    fleet.moved(away_from=victim)
    fleet.cluster.remove_node(node, allow_graceful=False)


def test_a_node_that_dies_loses_its_own_sessions_only(fleet: Fleet, front: Raw) -> None:
    victim, node = fleet.on_worker()
    other = fleet.away(victim.slot)
    one = Raw(other.url)
    sid, kept = fleet.session(one, victim.slot), fleet.session(one, other.slot)
    with one.opened(sid, "stay") as call:
        fleet.cluster.remove_node(node, allow_graceful=False)
        assert call.rest().error().startswith("Session lost: ")
    assert one.post("/ping", sid=sid).status == 410
    fresh = fleet.session(one, other.slot)  # new sessions begin before the host is back
    assert one.call(fresh, "nothing").result()["ok"] is True
    fleet.moved(away_from=victim)
    for each in (kept, fresh):
        assert one.call(each, "nothing").result()["ok"] is True
        assert one.post("/delete", sid=each).status == 200


def test_a_frozen_node_is_given_up_and_leaves_no_second_life(fleet: Fleet, front: Raw) -> None:
    victim, node = fleet.on_worker()
    pid = fleet.pid(victim.slot)
    one = Raw(fleet.away(victim.slot).url)
    sid = fleet.session(one, victim.slot)
    with one.opened(sid, "stay") as call, frozen(family(raylet(node))):
        assert call.rest().error().startswith("Session lost: ")
        assert one.post("/ping", sid=sid).status == 410
        fleet.moved(away_from=victim)
    gone(pid)
    fleet.cluster.remove_node(node, allow_graceful=False)


async def test_hosts_and_routers_killed_at_random_run_no_tool_twice(
    fleet: Fleet, front: Raw, traces: Path
) -> None:
    ledger, chance = Ledger(front.url, traces, "r"), random.Random(8)
    ledger.play(8)
    dead = set()
    for _ in range(3):
        await ledger.more(20)
        actors = [*fleet.deployment.routers.values()]
        hosts = [fleet.deployment.actor(row.slot) for row in fleet.rows]
        actor = chance.choice([*actors, *hosts * 2])
        pid = await asyncio.to_thread(fleet.process, actor)
        if actor in hosts:
            dead.add(await asyncio.to_thread(fleet.place, actor))
        os.kill(pid, signal.SIGKILL)
    await ledger.more(20)
    await ledger.settle(dead)
