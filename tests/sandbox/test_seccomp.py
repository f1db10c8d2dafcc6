"""The filter of system calls, for both architectures."""

import errno
import json
import re
import struct
from pathlib import Path

import pytest

from ors.sandbox import seccomp

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
MACHINES = list(seccomp.ARCHITECTURES)


def number(name: str, machine: str) -> int:
    found = seccomp.ARGUED[name][seccomp.ARCHITECTURES[machine][0]]
    assert found is not None
    return found


def verdict(machine: str, call: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would do, by its rules for classic BPF."""
    architecture = seccomp.ARCHITECTURES[machine]
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", call, audit or architecture[1], 0, *padded)
    lines = list(struct.iter_unpack("=HBBI", seccomp.program(machine, counted=False)))
    place, value = 0, 0
    while True:
        operation, then, otherwise, constant = lines[place]
        place += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x06:
            return int(constant)
        elif operation == 0x54:
            value &= constant
        else:
            holds = {0x15: value == constant, 0x25: value > constant, 0x45: bool(value & constant)}[operation]
            place += then if holds else otherwise


@pytest.mark.parametrize("machine", MACHINES)
def test_denied_calls_are_refused_and_others_are_not(machine: str) -> None:
    column = seccomp.ARCHITECTURES[machine][0]
    denied = {numbers[column] for numbers in seccomp.DENIED.values()} - {None}
    denied |= {numbers[column] for numbers in seccomp.UNCOUNTED.values()} - {None}
    refused = {call for call in range(463) if verdict(machine, call) == ERRNO | errno.EPERM}
    assert refused == denied
    assert verdict(machine, number("clone3", machine)) == ERRNO | errno.ENOSYS
    assert verdict(machine, 463) == ERRNO | errno.ENOSYS
    assert verdict(machine, 0x40000000 + 1) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_are_killed(machine: str) -> None:
    assert verdict(machine, 0, audit=0x40000003) == KILL


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("flag", [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x40000000])
def test_clone_makes_threads_and_no_namespaces(machine: str, flag: int) -> None:
    assert verdict(machine, number("clone", machine), flag | 17) == ERRNO | errno.EPERM
    assert verdict(machine, number("clone", machine), 0x3D0F00) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_for_sockets_terminals_and_personalities(machine: str) -> None:
    for call in (number("socket", machine), number("socketpair", machine)):
        allowed = [family for family in range(64) if verdict(machine, call, family) == ALLOW]
        assert allowed == [1, 2, 10, 16]
        assert verdict(machine, call, 40) == ERRNO | errno.EAFNOSUPPORT
    ioctl, personality = number("ioctl", machine), number("personality", machine)
    assert verdict(machine, ioctl, 0, 0x5412) == ERRNO | errno.EPERM
    assert verdict(machine, ioctl, 0, 0x1_0000_5412) == ERRNO | errno.EPERM
    assert verdict(machine, ioctl, 0, 0x5401) == ALLOW
    assert verdict(machine, personality, 0xFFFFFFFF) == ALLOW
    assert verdict(machine, personality, 0x0040000) == ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("the headers of the kernel are not installed")
    known = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", HEADERS[machine].read_text()))
    column = seccomp.ARCHITECTURES[machine][0]
    table = {**seccomp.DENIED, **seccomp.ARGUED, **seccomp.UNCOUNTED}
    wrong = {
        name: numbers[column]
        for name, numbers in table.items()
        if name in known and str(numbers[column]) != known[name]
    }
    assert wrong == {}
    assert len(set(table) & set(known)) > 60


def test_the_profile_for_engines_has_the_same_rules() -> None:
    rules = json.loads(seccomp.profile())
    assert rules["defaultAction"] == "SCMP_ACT_ALLOW"
    named = {name for rule in rules["syscalls"] for name in rule["names"]}
    assert named == {*seccomp.DENIED, *seccomp.ARGUED} - {"mmap"}
    rules = json.loads(seccomp.profile(counted=False))
    named = {name for rule in rules["syscalls"] for name in rule["names"]}
    assert {*seccomp.UNCOUNTED, "mmap"} <= named
    assert all(len(rule["args"]) <= 1 for rule in rules["syscalls"])


@pytest.mark.parametrize("machine", MACHINES)
def test_programs_cannot_stop_or_slow_other_processes(machine: str) -> None:
    calls = {name: number(name, machine) for name in seccomp.ARGUED}
    signals = {"kill": 1, "tkill": 1, "tgkill": 2, "rt_sigqueueinfo": 1, "rt_tgsigqueueinfo": 2}
    for name, place in {**signals, "pidfd_send_signal": 1}.items():
        refused = [n for n in range(65) if verdict(machine, calls[name], *[7] * place, n) != ALLOW]
        assert refused == [19], name
    for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        assert [verdict(machine, calls[name], pid) == ALLOW for pid in (0, 1, 2)] == [True, False, True]
    setpriority = [(which, who) for which in range(3) for who in (0, 1, 1000)]
    allowed = {pair for pair in setpriority if verdict(machine, calls["setpriority"], *pair) == ALLOW}
    assert allowed == {(0, 0), (0, 1000), (1, 0), (1, 1000)}
    refused = [command for command in range(1100) if verdict(machine, calls["fcntl"], 3, command) != ALLOW]
    assert refused == [10, 1024]
    assert verdict(machine, calls["prlimit64"], 0, 7) == ALLOW
    assert verdict(machine, calls["prlimit64"], 1, 7) == ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_that_nobody_counts_cannot_be_shared(machine: str) -> None:
    mmap = number("mmap", machine)
    allowed = [flags for flags in range(64) if verdict(machine, mmap, 0, 4096, 3, flags) == ALLOW]
    assert allowed == [flags for flags in range(64) if flags & 0x21 != 0x21]
