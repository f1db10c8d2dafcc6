"""`ors serve`: flags that would be without effect are refused in one line."""

import signal
from pathlib import Path

import pytest

from tests.support.commands import refused, running
from tests.support.raw_http import Raw
from tests.support.worker_command import alive

RAY = ("--ray", "--host", "127.0.0.1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hosts", "2"], "--hosts works only with --ray"),
        (["--routers", "1"], "--routers works only with --ray"),
        (["--hosts", "1", "--workers", "2"], "--hosts works only with --ray"),
        (["--num-cpus", "1"], "--num-cpus works only with --ray"),
        (["--num-gpus", "1"], "--num-gpus works only with --ray"),
        (["--resource", "a=1"], "--resource works only with --ray"),
        (["--runtime-env", "{}"], "--runtime-env works only with --ray"),
        (
            ["--workers", "2", "--slot", "3"],
            "--slot cannot be combined with --workers: each worker gets its own slot",
        ),
        (["--workers", "1", "--slot", "0"], "--slot cannot be combined with --workers"),
        (
            ["--max-worker-memory", "9M", "--slot", "3"],
            "--slot cannot be combined with --max-worker-memory",
        ),
        (["--workers", "2", "--reload"], "--workers cannot be combined with --reload"),
        (["--drain-seconds", "5", "--reload"], "--drain-seconds cannot be combined with --reload"),
        (["--retire-seconds", "5", "--reload"], "--retire-seconds cannot be combined with --reload"),
        (
            [*RAY, "--retire-seconds", "5"],
            "--retire-seconds cannot be combined with --ray: use --drain-seconds",
        ),
        ([*RAY, "--workers", "2"], "--workers cannot be combined with --ray: use --hosts for the number"),
        ([*RAY, "--slot", "2"], "--slot cannot be combined with --ray: each host gets its own slot"),
        ([*RAY, "--reload"], "--reload cannot be combined with --ray"),
        ([*RAY, "--ssl-certfile", __file__], "--ssl-certfile cannot be combined with --ray: use a proxy"),
    ],
)
def test_flags_that_do_not_go_together_are_one_line(words: list[str], said: str, park: str) -> None:
    done = refused("serve", park, "--port", "0", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num-cpus", "0"], "0.0 is not in the range x>=0.01"),
        (["--resource", "GPU=1"], "use --num-gpus for that"),
        (["--resource", "CPU=1"], "use --num-cpus for that"),
        (["--resource", "=1"], "'=1' is not an amount"),
        (["--resource", "a=nan"], "'a=nan' is not an amount"),
        (["--resource", "a=-1"], "'a=-1' is not an amount"),
        (["--runtime-env", __file__], "not valid JSON"),
        (["--hosts", "3:2"], "'3:2' is neither a number of 1 or more nor MIN:MAX"),
    ],
)
def test_amounts_that_ray_would_not_take_are_refused(words: list[str], said: str, park: str) -> None:
    done = refused("serve", park, *RAY, *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err.splitlines()[-1]


def test_what_a_file_sets_for_ray_may_stand_where_ray_is_not_used(park: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ors.serve]\nhosts = 8\nrouters = 2\n")
    with running("serve", park, "--port", "0", cwd=tmp_path) as server:
        assert server.line("Serving on")


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [["--workers", "1"], ["--max-worker-memory", "2G"]],
)
def test_one_worker_is_supervised_if_it_is_asked_for(words: list[str], park: str) -> None:
    with running("serve", park, "--port", "0", "--log-level", "error", *words) as server:
        raw = Raw(server.line(r"Serving on (http://\S+)")[1])
        (worker,) = children(server.process.pid)
        assert raw.get("/health").status == 200
        server.process.send_signal(signal.SIGHUP)
        server.errors("Replacing all workers")
        while alive(worker):
            assert raw.get("/health").status == 200
        assert len(children(server.process.pid)) == 1
        assert server.stop().code == 0


def test_a_server_that_nobody_asked_workers_of_is_one_process(park: str) -> None:
    with running("serve", park, "--port", "0") as server:
        server.line("Serving on")
        assert children(server.process.pid) == []
        assert server.stop(signal.SIGHUP).code == 0


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that have not ended."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
