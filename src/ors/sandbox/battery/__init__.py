"""The battery: attacks on a sandbox, to see that each is blocked on this machine."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.resources import files

from ors.sandbox import seccomp
from ors.sandbox.battery import inside, outside
from ors.sandbox.battery.host import PlantedHost
from ors.sandbox.box import Sandbox, open_box
from ors.sandbox.spec import MB, SandboxSpec

SMALL = SandboxSpec(memory=192 * MB, processes=40, disk=16 * MB, tmp=8 * MB, inodes=5000)
"""Limits that are quick to reach."""
MUST_WORK = {"use the own loopback", outside.ALLOWED}
SILENT = {
    *("nfsservctl", "lookup_dcookie", "memfd_secret", "quotactl_fd", "statmount", "listmount"),
    *("lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules"),
}
"""Calls that say ENOSYS or EPERM on many kernels by themselves, so that trying them shows nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one attack ended."""

    attack: str
    blocked: bool
    detail: str = ""


def calls() -> list[str]:
    return [name for name, numbers in seccomp.DENIED.items() if None not in numbers and name not in SILENT]


def names() -> list[str]:
    return [*inside.ATTACKS, *calls(), *inside.HEAVY, *outside.ATTACKS, *outside.REQUESTS]


async def battery(spec: SandboxSpec) -> AsyncIterator[Verdict]:
    """Attacks sandboxes on the backend of the spec, one attack after the other.

    Raises:
        SandboxUnavailable: no sandbox can be opened.
    """
    spec = replace(SMALL, backend=spec.backend, image=spec.image, rootfs=spec.rootfs, writable=spec.writable)
    alone = [[name] for name in (*inside.HEAVY, *outside.ATTACKS)]
    with PlantedHost() as host:
        async with _neighbour(spec, host) as neighbour:
            for group in (list(inside.ATTACKS), calls(), *alone):
                async with await open_box(spec) as box:
                    targets = host.targets(spec, box.work, neighbour)
                    for verdict in await attacked(box, host, group, targets):
                        yield verdict
            if box.backend == "bwrap":  # the others have no allow-lists
                async with await open_box(replace(spec, network=host.allow)) as box:
                    for name in outside.REQUESTS:
                        yield _verdict(name, await outside.attempt(box, host, name))


@asynccontextmanager
async def _neighbour(spec: SandboxSpec, host: PlantedHost) -> AsyncIterator[str]:
    """Another sandbox, with a program that runs and a file."""
    async with await open_box(spec) as box:
        await box.write_file(f"{host.mark}-file", b"private")
        process = await box.spawn(["python3", "-c", "import time; time.sleep(600)", f"{host.mark}-neighbour"])
        yield f"{box.work}/{host.mark}-file"
        process.kill()


async def attacked(box: Sandbox, host: PlantedHost, group: Sequence[str], targets: str) -> list[Verdict]:
    if group[0] in outside.NEVER_UNISOLATED and box.backend == "none":
        return []
    if group[0] in outside.ATTACKS:
        achieved = {group[0]: await outside.ATTACKS[group[0]](box, host)}
    else:
        achieved = await run_inside(box, group, targets)
    achieved = {**achieved, **host.damage()}
    host.clean()
    return [_verdict(name, achieved.get(name, "")) for name in group]


def _verdict(name: str, achieved: str) -> Verdict:
    return Verdict(name, blocked=bool(achieved) is (name in MUST_WORK), detail=achieved)


async def run_inside(box: Sandbox, group: Sequence[str], targets: str) -> dict[str, str]:
    """Runs attacks inside, and returns what they achieved; those that were killed have achieved nothing."""
    result = await box.exec(["python3", "-I", "-", targets, *group], stdin=program(), timeout=60)
    if b"Traceback" in result.stderr:
        raise RuntimeError(f"an attack is broken: {result.stderr.decode(errors='replace')}")
    found = dict(json.loads(line) for line in result.stdout.splitlines())
    if len(found) < len(group) and group[0] not in inside.HEAVY:
        raise RuntimeError(f"the attack after {list(found)[-1:]} did not end: {result}")
    return found


def program() -> bytes:
    return files(__name__).joinpath("inside.py").read_bytes()
