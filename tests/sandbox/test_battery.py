"""Every attack is blocked where a backend isolates, works where none does, and finds planted holes."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ors.sandbox import SandboxSpec
from ors.sandbox.battery import (
    ALLOWED,
    MUST_WORK,
    NEVER_UNISOLATED,
    REQUESTS,
    SMALL,
    attempt,
    battery,
    calls,
    names,
    root_outside,
    run_inside,
)
from ors.sandbox.box import open_box
from ors.sandbox.bwrap import Bwrap
from ors.sandbox.planted import PlantedHost
from tests.sandbox.conftest import NOBODY, SOURCE, host_pids
from tests.support.waiting import wait_until

ROOT = os.getuid() == 0
BWRAP = SandboxSpec(backend="bwrap")

BY_THE_AGENT = {
    "file interface: copy a link to the host",
    "file interface: pipes and devices",
    "a daemon after the end",
    "endless output",
    "endless time",
    "grade: hand in links",
    "void the episode by deep folders",
}
"""What the agent prevents, with or without isolation."""
BY_THE_KERNEL = {
    *(
        "change the kernel's settings",
        "read /etc/shadow",
        "list /root",
        "read a disk",
        "read the kernel log",
        "read kernel memory",
    ),
    *(
        "open a packet socket",
        "be root on the host",
        "pivot_root",
        "move_mount",
        "fsopen",
        "fsmount",
        "fspick",
    ),
    *("fanotify_init", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"),
    *("reboot", "swapon", "swapoff", "acct", "syslog", "vhangup", "sethostname", "setdomainname", "bpf"),
    *("perf_event_open", "userfaultfd", "open_by_handle_at", "quotactl", "settimeofday", "clock_settime"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key", "request_key"),
}
"""What a kernel may refuse to plain users by itself."""
ABSENT = {
    *("read a disk", "read kernel memory", "init_module", "finit_module", "delete_module"),
    *("kexec_load", "kexec_file_load"),
}
"""What kernels and virtual machines may lack, for root too."""

PROGRAM = """
import asyncio, json, sys
from ors.sandbox import SandboxSpec
from ors.sandbox.battery import battery

async def main():
    spec = SandboxSpec(backend="bwrap", writable=bool(sys.argv[1]))
    return [(v.attack, v.blocked, v.detail) async for v in battery(spec)]

print(json.dumps(asyncio.run(main())))
"""


@pytest.mark.long
@pytest.mark.parametrize("writable", [False, True])
async def test_every_attack_is_blocked_by_bubblewrap(writable: bool) -> None:
    verdicts = [verdict async for verdict in battery(replace(BWRAP, writable=writable))]
    assert [verdict for verdict in verdicts if not verdict.blocked] == []
    assert [verdict.attack for verdict in verdicts] == names()
    assert len(verdicts) > 90


@pytest.mark.long
@pytest.mark.skipif(not ROOT, reason="the test above runs as a plain user already")
@pytest.mark.parametrize("writable", ["", "writable"])
def test_every_attack_is_blocked_for_a_plain_user(public_python: str, writable: str) -> None:
    done = subprocess.run(
        [public_python, "-c", PROGRAM, writable],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    verdicts = json.loads(done.stdout)
    assert [verdict for verdict in verdicts if not verdict[1]] == []
    assert [attack for attack, _, _ in verdicts] == names()


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A container engine; docker with a daemon of its own, where none runs."""
    engine, folder = str(request.param), tmp_path_factory.mktemp(request.param)
    settings = folder / "containers.conf"
    # crun refuses machines that have control groups of both versions.
    settings.write_text('[engine]\nruntime = "runc"\n')
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("CONTAINERS_CONF", str(settings))
        if engine == "docker" and not answers("docker"):
            patch.setenv("DOCKER_HOST", stack.enter_context(dockerd(folder)))
        if not answers(engine):
            pytest.skip(f"{engine} is not installed here, or may not run")
        yield engine


@contextmanager
def dockerd(folder: Path) -> Iterator[str]:
    """A daemon that changes nothing outside of its folder; skips where it is not installed."""
    if not ROOT or shutil.which("dockerd") is None:
        pytest.skip("no daemon of docker runs here, and none can be started")
    address = f"unix://{folder}/docker.sock"
    options = {"data-root": folder / "data", "exec-root": folder / "exec", "pidfile": folder / "pid"}
    plain = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"]
    command = ["dockerd", "--host", address, *plain, *(f"--{key}={path}" for key, path in options.items())]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as daemon:
        try:
            wait_until(
                lambda: daemon.poll() is not None or answers("docker", DOCKER_HOST=address),
                "dockerd answers or has ended",
            )
            yield address
        finally:
            daemon.terminate()


def answers(engine: str, **environment: str) -> bool:
    try:
        command = [engine, "ps", "-q"]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


@pytest.fixture(scope="module")
def image(engine: str, rootfs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image, made without a registry. Skips where the engine cannot run it."""
    name = f"localhost/ors-test-{os.getpid()}"
    archive = tmp_path_factory.mktemp("image") / "root.tar"
    try:
        subprocess.run(["tar", "-C", str(rootfs), "-cf", str(archive), "."], check=True)
        subprocess.run([engine, "import", str(archive), name], check=True, capture_output=True)
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=64:64", "--network", "none"]
        subprocess.run([engine, "run", "--rm", *limits, name, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"{engine} cannot run here: {getattr(error, 'stderr', error)!r}")
    yield name
    subprocess.run([engine, "rmi", "--force", name], check=False, capture_output=True)


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_every_attack_is_blocked_by_a_container_engine(
    engine: Any, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = SandboxSpec(backend=engine, image=image)
    verdicts = [verdict async for verdict in battery(spec)]
    assert [verdict for verdict in verdicts if not verdict.blocked] == []
    assert [verdict.attack for verdict in verdicts] == [name for name in names() if name not in REQUESTS]
    own = [engine, "ps", "-aq", "--filter", f"name=ors-{os.getpid()}-"]
    left = subprocess.run(own, capture_output=True, text=True, check=True)
    assert (left.stdout, list(tmp_path.iterdir())) == ("", [])


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_every_attack_works_without_isolation() -> None:
    blocked = {verdict.attack async for verdict in battery(SandboxSpec(backend="none")) if verdict.blocked}
    assert blocked - (ABSENT if ROOT else BY_THE_KERNEL) == BY_THE_AGENT | (MUST_WORK - {ALLOWED})
    assert set(names()) > NEVER_UNISOLATED


# ── Planted holes ────────────────────────────────────────────────────────────────────────────────


class InheritsEnvironment(Bwrap):
    """Starts bubblewrap with the server's environment, which its first process keeps."""

    def command(self, *args: object, **kwargs: object) -> list[str]:
        words = super().command(*args, **kwargs)  # type: ignore[arg-type]
        secret = f"ORS_TEST_SECRET={os.environ['ORS_TEST_SECRET']}"
        return ["env", secret, *(word for word in words if word != "--as-pid-1")]


class NoFilter(Bwrap):
    """Leaves the filter of system calls out."""

    def command(self, *args: object, **kwargs: object) -> list[str]:
        words = super().command(*args, **kwargs)  # type: ignore[arg-type]
        at = words.index("--seccomp")
        return words[:at] + words[at + 2 :]


class StaysRoot(Bwrap):
    """Does not drop root."""

    def user(self) -> int | None:
        return None


@pytest.fixture
async def host() -> AsyncIterator[PlantedHost]:
    with PlantedHost() as planted:
        yield planted


async def achieved(backend: Bwrap, host: PlantedHost, attacks: list[str]) -> dict[str, str]:
    async with await open_box(SMALL, among=[backend]) as box:
        return await run_inside(box, attacks, host.targets(SMALL, box.work, "/nowhere"))


async def test_an_inherited_environment_is_found(host: PlantedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORS_TEST_SECRET", host.secret)
    attack = "read the server's environment"
    assert (await achieved(InheritsEnvironment(), host, [attack]))[attack]
    assert not (await achieved(Bwrap(), host, [attack]))[attack]


async def test_a_missing_filter_is_found(host: PlantedHost) -> None:
    attacks = [*calls(), "open a vsock", "clone3", "type into the terminal"]
    found = {name for name, what in (await achieved(NoFilter(), host, attacks)).items() if what}
    assert {"ptrace", "clone3", "type into the terminal", "mount", "process_vm_readv"} <= found
    assert not any((await achieved(Bwrap(), host, attacks)).values())


class Everything(frozenset[str]):
    """Places that name every place."""

    def __contains__(self, _: object) -> bool:
        return True


async def test_a_proxy_that_asks_no_list_is_found(host: PlantedHost) -> None:
    async with await open_box(replace(SMALL, network=host.allow), among=[Bwrap()]) as box:
        assert box.cell.egress is not None
        object.__setattr__(host.allow, "places", Everything())
        found = {name for name in REQUESTS if await attempt(box, host, name)}
    assert found >= {ALLOWED, *(f"egress: {what}" for what in ("another host", "another port", "a redirect"))}
    assert found >= {f"egress: a{what}" for what in (" URL of another host", "n address in another form")}
    assert "egress: a name of the host's loopback" in found


@pytest.mark.skipif(not ROOT, reason="only root can stay root")
async def test_a_sandbox_that_stays_root_is_found(host: PlantedHost) -> None:
    async with await open_box(SMALL, among=[StaysRoot()]) as box:
        assert await root_outside(box, host)
    async with await open_box(SMALL, among=[Bwrap()]) as box:
        assert not await root_outside(box, host)


@pytest.mark.skipif(not ROOT, reason="only root can enter a sandbox from outside")
async def test_programs_that_enter_from_outside_are_found(host: PlantedHost) -> None:
    async with await open_box(SMALL, among=[Bwrap()]) as box:
        agent = next(
            pid
            for pid in host_pids(box)
            if Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].split()[1:2] == ["1"]
        )
        enter = ["nsenter", f"--target={agent}", "--mount", "--pid", "--net", "--ipc", "--uts"]
        found = subprocess.run(
            [*enter, "python3", "-I", "-", host.targets(SMALL, box.work, "/nowhere"), "ptrace", "keyctl"],
            input=Path(SOURCE, "ors/sandbox/inside/attacks.py").read_bytes(),
            capture_output=True,
            check=True,
        )
        assert all(json.loads(line)[1] for line in found.stdout.splitlines())
        assert not any((await run_inside(box, ["ptrace", "keyctl"], host.targets(SMALL, "", ""))).values())


@pytest.mark.skipif(not ROOT, reason="a plain user has one user id")
async def test_two_sandboxes_of_root_have_different_users() -> None:
    users = []
    for _ in range(2):
        async with await open_box(BWRAP) as box:
            users.append({os.stat(f"/proc/{pid}").st_uid for pid in host_pids(box)})
    assert 0 not in users[0] | users[1]
    assert not users[0] & users[1]
