"""The battery: attacks on a sandbox, to see that each is blocked on this machine.

Those of `inside/attacks.py` run in the sandbox. The others are here, as they need the server's side: files,
output, time, graders, what is left after the end, allow-lists.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from ors.errors import SandboxDead, SandboxLimit
from ors.sandbox import seccomp
from ors.sandbox.box import Sandbox, open_box
from ors.sandbox.inside import attacks as inside
from ors.sandbox.planted import PlantedHost
from ors.sandbox.spec import MB, PROXY_PORT, SandboxSpec

FAST = 3.0
"""Seconds that an answer may take where a hang is the attack."""
SMALL = SandboxSpec(memory=192 * MB, processes=40, disk=16 * MB, tmp=8 * MB, inodes=5000)
"""Limits that are quick to reach."""
SILENT = {
    *("nfsservctl", "lookup_dcookie", "memfd_secret", "quotactl_fd", "statmount", "listmount"),
    *("lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules"),
}
"""Calls that say ENOSYS or EPERM on many kernels by themselves, so that trying them shows nothing."""


async def _read(box: Sandbox, path: str) -> bytes:
    """Reads a path through the file interface; nothing if it refuses. Raises TimeoutError if it hangs."""
    async with asyncio.timeout(FAST):
        try:
            return await box.read_file(path, 4096)
        except (OSError, SandboxLimit):
            return b""


async def through_a_link(box: Sandbox, host: PlantedHost) -> str:
    await box.exec(["ln", "-sfn", str(host.key), "link"])
    found = await _read(box, "link")
    climbing = await _read(box, "/work/" + "../" * 12 + str(host.key).lstrip("/"))
    return "read the key" if host.secret.encode() in found + climbing else ""


async def written_through_a_link(box: Sandbox, host: PlantedHost) -> str:
    await box.exec(f"ln -sfn {host.folder}/open/{host.mark} out; ln -sfn {host.folder}/open folder")
    for path in ("out", f"folder/{host.mark}", "../" * 12 + f"{host.folder}/open/{host.mark}"):
        with contextlib.suppress(OSError):
            await box.write_file(path, b"here")
    return ", ".join(host.marks())


async def copied_from_a_link(box: Sandbox, host: PlantedHost) -> str:
    await box.exec(f"mkdir -p tree && ln -sfn {host.key} tree/key && mkfifo tree/pipe; touch tree/file")
    await box.download("tree", host.folder / "copied")
    found = sorted(path.name for path in (host.folder / "copied").iterdir())
    return "" if found == ["file"] else f"copied {found}"


async def special_files(box: Sandbox, host: PlantedHost) -> str:
    await box.exec("mkfifo pipe")
    try:
        read = [path for path in ("pipe", "/dev/zero", "/dev/tty", ".") if await _read(box, path)]
    except TimeoutError:
        return "the server waits for ever"
    return f"read {read}" if read else ""


async def endless_output(box: Sandbox, host: PlantedHost) -> str:
    result = await box.exec(["yes"], max_output=2**20, timeout=20)
    stopped = result.truncated and result.returncode is None
    return "" if stopped and len(result.stdout) <= 2**20 else f"printed {len(result.stdout):,} bytes"


async def endless_time(box: Sandbox, host: PlantedHost) -> str:
    code = "trap '' 1 2 3 13 14 15 18; while :; do :; done"
    result = await box.exec(["sh", "-c", code, host.mark], timeout=0.5)
    return "" if result.timed_out and not host.running() else "still runs after its time"


async def daemon(box: Sandbox, host: PlantedHost) -> str:
    """Leaves a process behind that has no parent, no session and no terminal in common."""
    code = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(60)\n"
    await box.exec(["python3", "-c", code, host.mark])
    async with asyncio.timeout(FAST):
        while not await asyncio.to_thread(host.running):
            continue  # it is just being born
    await box.close()
    found = host.running()
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return f"process {found[0]} outlives the sandbox" if found else ""


async def kill_everything(box: Sandbox, host: PlantedHost) -> str:
    await box.exec("kill -9 -1; kill -INT 1; kill -STOP 1; kill -9 1")
    try:
        async with asyncio.timeout(FAST):
            return "" if (await box.exec(["echo", "here"])).stdout == b"here\n" else "answers wrongly"
    except (SandboxDead, TimeoutError):
        return "the sandbox is dead"


async def root_outside(box: Sandbox, host: PlantedHost) -> str:
    """Runs as root, as the host sees it: every fault of the kernel or of a mount would count double."""
    process = await box.spawn(["sh", "-c", "echo 1; sleep 60; true", host.mark])
    await process.read()
    owners = {os.stat(f"/proc/{pid}").st_uid for pid in host.running()}
    process.kill()
    await process.wait()
    return "is root on the host" if 0 in owners else ""


LINKS = """
mkdir -p a/b; ln -sfn /work a/b/up; ln -sfn a/b/up/../home/agent/grade/expected 1; ln -sfn 1 2
ln -sfn /dev/stdin 3; ln -sfn /home/agent/grade/expected 4; ln -sfn /proc/self/cwd/expected 5
ln -sfn /home/agent/grade folder
"""
JUDGE = "import subprocess as s; s.run(['sh', '../../../work/program'], stdout=s.DEVNULL, stderr=s.DEVNULL)"
FULL = """
import contextlib, os, socket
open('/proc/self/oom_score_adj', 'w').write('0')
for number in range(20):
    if os.fork() == 0:
        for end in [end for _ in range(24) for end in socket.socketpair()]:
            end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True: end.send(bytes(2**16))
            os.set_inheritable(end.detach(), True)
        os.execvp('sleep', ['sleep', '60'])
fill = 'for place in /work /tmp /dev/shm; do head -c 16M /dev/zero > $place/x; done; sleep 60'
os.execvp('sh', ['sh', '-c', fill])
"""
"""Holds memory in small processes, so that the agent is the largest one when there is no more."""


async def graded_by_a_link(box: Sandbox, host: PlantedHost) -> str:
    await box.exec(LINKS)
    secret, read = host.secret.encode(), "cat /work/[1-5] /work/folder/expected"
    result = await box.grade(read, files={"expected": secret}, stdin=secret)
    return "read the grader's files" if secret in result.stdout else ""


async def spoofed_judge(box: Sandbox, host: PlantedHost) -> str:
    await box.write_file("program", f"echo {host.mark} > /proc/$PPID/fd/1".encode())
    result = await box.grade(["python3", "-I", "judge.py"], files={"judge.py": JUDGE})
    return "spoke for the judge" if host.mark.encode() in result.stdout else ""


async def voided(attack: Awaitable[object], box: Sandbox) -> str:
    """Whether an attack makes the sandbox fail, in place of a result or a limit."""
    try:
        await attack
        await box.grade(["true"])
    except SandboxDead as error:
        return str(error)
    except (OSError, SandboxLimit):
        return ""
    return ""


Attack = Callable[[Sandbox, PlantedHost], Awaitable[str]]
OUTSIDE: dict[str, Attack] = {
    "file interface: read through a link": through_a_link,
    "file interface: write through a link": written_through_a_link,
    "file interface: copy a link to the host": copied_from_a_link,
    "file interface: pipes and devices": special_files,
    "be root on the host": root_outside,
    "endless output": endless_output,
    "endless time": endless_time,
    "kill the agent": kill_everything,
    "grade: hand in links": graded_by_a_link,
    "grade: speak for the judge": spoofed_judge,
    "void the episode by deep folders": lambda box, _: voided(box.write_file("d/" * 1500 + "f", b""), box),
    "void the episode by memory": lambda box, _: voided(box.exec(["python3", "-c", FULL], timeout=5), box),
    "a daemon after the end": daemon,
}
"""The last one closes its sandbox."""
NEVER_UNISOLATED = {"kill the agent", "void the episode by memory"}
"""Attacks that would do harm to the host."""

# ── Allow-lists ──────────────────────────────────────────────────────────────────────────────────

ALLOWED = "egress: reach what is allowed"
CLIENT = f"""
import socket, sys
client = socket.create_connection(("127.0.0.1", {PROXY_PORT}), 5)
client.sendall(sys.stdin.buffer.read())
while data := client.recv(65536): sys.stdout.buffer.write(data); sys.stdout.flush()
"""
FOLLOW = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read())"
END = " HTTP/1.1\n\n"
GET = "GET / HTTP/1.1\nConnection: close\nHost: elsewhere\n\n"
SECRETLY = GET.replace("elsewhere", "here")
NUMBERS = "2130706433:OTHER 0x7f.1:OTHER 0:OTHER [::ffff:127.0.0.1]:OTHER 0x7f.1:PORT 127.0.0.1.:PORT"
PAIRS = "HERE@THERE THERE#HERE THERE/HERE THERE\\@HERE HERE,THERE"
HOSTS = ("Host: elsewhere", "Host: HERE\nHost: elsewhere", "Host : elsewhere", "A: b\r\tHost: elsewhere")
REQUESTS = {
    ALLOWED: [f"CONNECT HERE{END}{SECRETLY}", f"GET http://HERE/{END}"],
    "egress: another host": [f"CONNECT localhost:PORT{END}{GET}"],
    "egress: another port": [f"CONNECT THERE{END}{GET}"],
    "egress: an address in another form": [f"CONNECT {each}{END}{GET}" for each in NUMBERS.split()],
    "egress: a name of the host's loopback": [f"CONNECT 127.1:OTHER{END}{GET}"],
    "egress: a request behind another": [
        f"CONNECT HERE{END}CONNECT THERE{END}{SECRETLY}",
        f"GET http://HERE/{END}GET http://THERE/{END}",
        f"GET http://HERE/ HTTP/1.1\nContent-Length: 0\nTransfer-Encoding: chunked\n\n0\n\n{GET}",
        f"GET http://HERE/ HTTP/1.1\nContent-Length: 0\nContent-Length: 80\n\n{GET}",
    ],
    "egress: two places in one request": [
        f"{start}{each}{END}{GET}" for start in ("CONNECT ", "GET http://") for each in PAIRS.split()
    ],
    "egress: a URL of another host": [f"GET http://THERE/{END}", f"GET HTTP://localhost:PORT/{END}"],
    "egress: another Host header": [f"GET http://HERE/ HTTP/1.1\n{each}\n\n" for each in HOSTS],
    "egress: a redirect": [],
}
"""The lines that are sent. Planted servers answer with their port, and the host that they are asked for."""


async def attempt(box: Sandbox, host: PlantedHost, name: str) -> str:
    """Sends the requests of an attack, and says what came back from where nothing should."""
    port, other = map(str, host.ports)
    words = {"HERE": f"127.0.0.1:{port}", "THERE": f"127.0.0.1:{other}", "PORT": port, "OTHER": other}
    commands = [(["python3", "-c", CLIENT], request) for request in REQUESTS[name]]
    redirect = ["python3", "-c", FOLLOW, "http://{HERE}/http://{THERE}/".format(**words)]
    replies = []
    for argv, text in commands or [(redirect, "")]:
        for word, meaning in {"\n": "\r\n", "THERE": words["THERE"], **words}.items():
            text = text.replace(word, meaning)
        replies.append((await box.exec(argv, stdin=text.encode(), timeout=10)).stdout.decode())
    if name == ALLOWED:
        return "reached" if all(f"port={port} host=" in reply for reply in replies) else ""
    wanted = (f"port={other} host=", "host=elsewhere", "host=localhost")
    return next((word for word in wanted for reply in replies if word in reply), "")


# ── All of them ──────────────────────────────────────────────────────────────────────────────────

MUST_WORK = {"use the own loopback", ALLOWED}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one attack ended."""

    attack: str
    blocked: bool
    detail: str = ""


def calls() -> list[str]:
    return [name for name, numbers in seccomp.DENIED.items() if None not in numbers and name not in SILENT]


def names() -> list[str]:
    return [*inside.ATTACKS, *calls(), *inside.HEAVY, *OUTSIDE, *REQUESTS]


async def battery(spec: SandboxSpec) -> AsyncIterator[Verdict]:
    """Attacks sandboxes on the backend of the spec, one attack after the other."""
    spec = replace(SMALL, backend=spec.backend, image=spec.image, rootfs=spec.rootfs, writable=spec.writable)
    alone = [[name] for name in (*inside.HEAVY, *OUTSIDE)]
    with PlantedHost() as host:
        async with await open_box(spec) as neighbour:  # with a program that runs, and a file
            await neighbour.write_file(f"{host.mark}-file", b"private")
            await neighbour.spawn(["sh", "-c", "sleep 600; true", f"{host.mark}-neighbour"])
            for group in (list(inside.ATTACKS), calls(), *alone):
                async with await open_box(spec) as box:
                    targets = host.targets(spec, box.work, f"{neighbour.work}/{host.mark}-file")
                    for verdict in await attacked(box, host, group, targets):
                        yield verdict
            if box.backend == "bwrap":  # the others have no allow-lists
                async with await open_box(replace(spec, network=host.allow)) as box:
                    for name in REQUESTS:
                        yield _verdict(name, await attempt(box, host, name))


async def attacked(box: Sandbox, host: PlantedHost, group: Sequence[str], targets: str) -> list[Verdict]:
    if group[0] in NEVER_UNISOLATED and box.backend == "none":
        return []
    if group[0] in OUTSIDE:
        achieved = {group[0]: await OUTSIDE[group[0]](box, host)}
    else:
        achieved = await run_inside(box, group, targets)
    achieved |= host.damage()
    return [_verdict(name, achieved.get(name, "")) for name in group]


def _verdict(name: str, achieved: str) -> Verdict:
    return Verdict(name, blocked=bool(achieved) is (name in MUST_WORK), detail=achieved)


async def run_inside(box: Sandbox, group: Sequence[str], targets: str) -> dict[str, str]:
    """Runs attacks inside, and returns what they achieved; those that were killed have achieved nothing."""
    program = files("ors.sandbox.inside").joinpath("attacks.py").read_bytes()
    result = await box.exec(["python3", "-I", "-", targets, *group], stdin=program, timeout=60)
    if b"Traceback" in result.stderr:
        raise RuntimeError(f"an attack is broken: {result.stderr.decode(errors='replace')}")
    found = dict(json.loads(line) for line in result.stdout.splitlines())
    if len(found) < len(group) and group[0] not in inside.HEAVY:
        raise RuntimeError(f"the attack after {list(found)[-1:]} did not end: {result}")
    return found
