"""A server that is told to end and has live sessions: they go on, new ones begin elsewhere."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.commands import PATIENCE, Running, running
from tests.support.in_process_cluster import routing
from tests.support.raw_http import Raw
from tests.support.worker_command import YARD, crew

pytestmark = pytest.mark.long


class Pair:
    """Two servers, each with two routers before it."""

    def __init__(self, servers: list[Running], routers: list[Raw], urls: list[str]) -> None:
        self.servers = servers
        self.routers = routers
        self.direct = [Raw(url) for url in urls]

    def minted(self, slot: int) -> str:
        while True:
            sid = str(self.routers[0].post("/create_session").json()["sid"])
            if int(sid[:4], 16) == slot:
                return sid

    def session(self, slot: int) -> str:
        sid = self.minted(slot)
        assert self.routers[0].post("/create", {"task_spec": {}}, sid=sid).status == 200
        return sid


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        variables = {"YARD": str(tmp_path / "traces"), "PYTHONUNBUFFERED": "1"}
        servers = [
            stack.enter_context(
                running(
                    "serve",
                    YARD,
                    "--port",
                    "0",
                    "--slot",
                    f"{slot}",
                    "--retire-seconds",
                    "600",
                    env=variables,
                )
            )
            for slot in (0, 1)
        ]
        urls = [server.line(r"Serving on (http://\S+)")[1] for server in servers]
        yield Pair(servers, [stack.enter_context(routing(urls)) for _ in range(2)], urls)
        for server in servers:
            server.process.send_signal(signal.SIGINT)


def note(raw: Raw, sid: str) -> bool:
    return bool(raw.call(sid, "note", {"name": "x"}, env="yard").result()["ok"])


def test_sessions_of_a_server_that_is_to_end_go_on_and_new_ones_begin_elsewhere(pair: Pair) -> None:
    sid, unused, given = pair.session(1), pair.minted(1), pair.minted(1)
    pair.servers[1].process.send_signal(signal.SIGTERM)
    while pair.direct[1].get("/-/health/ready").status == 200:
        pass
    refused = pair.direct[1].post("/create_session")
    assert (refused.status, refused.headers["ors-reason"]) == (503, "shutdown")
    assert pair.routers[1].post("/create", {"task_spec": {}}, sid=given).status == 200
    assert note(pair.routers[0], given)
    assert pair.routers[0].post("/delete", sid=given).status == 200
    for router in pair.routers:
        while 1 in {int(router.post("/create_session").json()["sid"][:4], 16) for _ in range(10)}:
            pass  # until it has heard that the server takes none
        for n in range(8):
            own = f"{router.port}-{n}"
            assert router.post("/create", {"task_spec": {}}, sid=own).status == 200
            assert pair.direct[0].post("/ping", sid=own).status == 200
        assert note(router, sid)
    assert pair.routers[0].post("/delete", sid=sid).status == 200
    assert pair.servers[1].process.wait(PATIENCE) == 0
    # An id that it had given away is as good as one that the client made.
    assert pair.routers[0].post("/create", {"task_spec": {}}, sid=unused).status == 200
    for router in pair.routers:
        assert note(router, unused)
        ended = router.post("/ping", sid=sid)
        assert (ended.status, ended.headers["ors-reason"]) == (410, "shutdown")


def test_another_signal_does_not_wait_for_sessions(pair: Pair) -> None:
    pair.session(0)
    pair.session(1)
    pair.servers[0].process.send_signal(signal.SIGINT)
    assert pair.servers[0].process.wait(PATIENCE) == 0
    pair.servers[1].process.send_signal(signal.SIGTERM)
    while pair.direct[1].get("/-/health/ready").status == 200:
        pass
    pair.servers[1].process.send_signal(signal.SIGTERM)
    assert pair.servers[1].process.wait(PATIENCE) == 0


def test_sessions_that_do_not_end_are_ended(tmp_path: Path) -> None:
    with running(
        "serve", YARD, "--port", "0", "--retire-seconds", "0.5", env={"YARD": str(tmp_path / "t")}
    ) as server:
        raw = Raw(server.line(r"Serving on (http://\S+)")[1])
        raw.session("yard")
        assert server.stop().code == 0


def test_sessions_of_workers_that_were_replaced_go_on_too(tmp_path: Path) -> None:
    with crew(tmp_path, 2, "--retire-seconds", "600") as made:
        before = set(made.living())
        sids = [made.session(slot) for slot in (0, 1)]
        made.process.send_signal(signal.SIGHUP)
        made.until(lambda: len(set(made.living()) - before) == 2 and len(made.slots()) >= 2)
        made.process.send_signal(signal.SIGTERM)
        while made.raw.post("/create_session").status == 200:
            pass
        for sid in sids:
            for _ in range(8):
                assert note(made.raw, sid)
            assert made.raw.post("/delete", sid=sid).status == 200
        assert made.process.wait(PATIENCE) == 0


def test_workers_that_are_to_end_keep_their_sessions(tmp_path: Path) -> None:
    with crew(tmp_path, 2, "--retire-seconds", "600") as made:
        sids = [made.session(slot) for slot in (0, 1)]
        made.process.send_signal(signal.SIGTERM)
        while made.raw.post("/create_session").status == 200:
            pass
        for sid in sids:
            for _ in range(8):  # through either of them
                assert note(made.raw, sid)
        assert made.raw.post("/delete", sid=sids[0]).status == 200
        made.until(lambda: len(made.living()) == 1)
        for _ in range(8):
            assert note(made.raw, sids[1])
        assert made.raw.post("/delete", sid=sids[1]).status == 200
        assert made.process.wait(PATIENCE) == 0
