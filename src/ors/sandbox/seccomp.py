"""The system calls that programs in a sandbox may not make, as a filter for the kernel or for an engine.

Everything that is newer than this list is refused too. The kernel's form is classic BPF, see seccomp(2).
"""

import errno
import json
import platform
import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

Numbers = dict[str, tuple[int | None, int | None]]


def _numbers(table: str) -> Numbers:
    """System calls by name, with their numbers on x86_64 and aarch64; "-": there is none."""
    lines = [line for line in table.split("\n") if line and not line.startswith("#")]
    rows = [row.split() for row in " ".join(lines).split(",")]
    return {name: (int(first), None if second == "-" else int(second)) for name, first, second in rows}


DENIED: Numbers = _numbers("""
# name spaces and mounts
unshare 272 97, setns 308 268, mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51,
open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433,
mount_setattr 442 442, statmount 457 457, listmount 458 458,
# other processes
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
process_mrelease 448 448, pidfd_getfd 438 438, kcmp 312 272,
# large parts of the kernel that few programs need
bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425, io_uring_enter 426 426,
io_uring_register 427 427, keyctl 250 219, add_key 248 217, request_key 249 218, fanotify_init 300 262,
fanotify_mark 301 263, name_to_handle_at 303 264, open_by_handle_at 304 265, lookup_dcookie 212 18,
memfd_secret 447 447, mbind 237 235, set_mempolicy 238 237, set_mempolicy_home_node 450 450,
migrate_pages 256 238, move_pages 279 239, lsm_get_self_attr 459 459, lsm_set_self_attr 460 460,
lsm_list_modules 461 461,
# the machine
init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104,
kexec_file_load 320 294, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60,
quotactl_fd 443 443, nfsservctl 180 42, syslog 103 116, vhangup 153 58, sethostname 170 161,
setdomainname 171 162, settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171,
iopl 172 -, ioperm 173 -, modify_ldt 154 -, uselib 134 -, ustat 136 -, sysfs 139 -, _sysctl 156 -,
create_module 174 -, get_kernel_syms 177 -, query_module 178 -
""")
"""Refused with EPERM."""
UNCOUNTED: Numbers = _numbers("""
memfd_create 319 279, shmget 29 194, msgget 68 186, semget 64 190, inotify_init 253 -, inotify_init1 294 26
""")
"""Memory that no process owns, and instances that all sandboxes of a user share: refused where no control
group counts. Shared mappings without a file are refused there too."""
ARGUED: Numbers = _numbers("""
clone 56 220, clone3 435 435, socket 41 198, socketpair 53 199, ioctl 16 29, personality 135 92,
prlimit64 302 261, mmap 9 222, kill 62 129, tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138,
rt_tgsigqueueinfo 297 240, pidfd_send_signal 424 424, fcntl 72 25, setpriority 141 140,
sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274
""")
"""Calls that `RULES` allow with some arguments only, and clone3: its flags are in memory, which a filter
cannot read; the C library falls back to clone."""


class Rule(NamedTuple):
    """Refuses a call if the bits of `mask` in an argument are one of the values; `only`: if they are not."""

    name: str
    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    only: bool = False
    error: int = errno.EPERM


NAMESPACES = 0x7E020000
"""Flags of clone that make name spaces."""
FAMILIES = (1, 2, 10, 16)
"""Sockets that programs may make: unix, IPv4, IPv6, netlink. Not vsock, which no name space holds."""
STOP, AGENT = 19, 1
"""The signal that nobody can ignore, and the process that programs must leave alone."""
RULES = (
    *(Rule("clone", 0, (1 << at,), 1 << at) for at in range(32) if NAMESPACES >> at & 1),
    Rule("ioctl", 1, (0x5412, 0x541C)),  # TIOCSTI, TIOCLINUX: they type into the terminal of somebody else
    Rule("personality", 0, (0, 0xFFFFFFFF), only=True),  # Linux, and the question which one it is
    *(Rule(name, 0, FAMILIES, only=True, error=errno.EAFNOSUPPORT) for name in ("socket", "socketpair")),
    # What stops the agent, or a process that it waits for, or slows it down.
    *(Rule(name, 1, (STOP,)) for name in ("kill", "tkill", "rt_sigqueueinfo", "pidfd_send_signal")),
    *(Rule(name, 2, (STOP,)) for name in ("tgkill", "rt_tgsigqueueinfo")),
    Rule("fcntl", 1, (10, 1024)),  # F_SETSIG sends signals, F_SETLEASE makes whoever opens a file wait
    Rule("setpriority", 0, (2,)),  # all processes of a user
    Rule("setpriority", 1, (AGENT,)),
    *(Rule(f"sched_{name}", 0, (AGENT,)) for name in ("setaffinity", "setscheduler", "setparam", "setattr")),
    Rule("prlimit64", 0, (0,), only=True),
)
SHARED = Rule("mmap", 3, (0x21,), 0x21)
"""MAP_SHARED and MAP_ANONYMOUS."""
NEWEST = 462

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The column of an architecture in these tables, and its name in the kernel's audit."""

_LOAD, _EQUAL, _GREATER, _RETURN, _AND = 0x20, 0x15, 0x25, 0x06, 0x54
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
Line = tuple[int, int, int, int]
"""An instruction: its operation, how many to skip if a test holds and if it does not, and a value."""


def rules(counted: bool) -> tuple[Rule, ...]:
    return RULES if counted else (*RULES, SHARED)


def refused(counted: bool) -> Numbers:
    return DENIED if counted else {**DENIED, **UNCOUNTED}


@cache
def program(machine: str | None = None, *, counted: bool = True) -> bytes:
    """The filter in the kernel's form, for this machine or another."""
    column, audit = ARCHITECTURES[machine or platform.machine()]
    lines: list[Line] = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL)]
    lines += [(_LOAD, 0, 0, _NUMBER)]
    lines += _when(_GREATER, NEWEST, errno.ENOSYS)  # the calls of the x32 interface too
    lines += _when(_EQUAL, ARGUED["clone3"][column], errno.ENOSYS)
    for numbers in refused(counted).values():
        lines += _when(_EQUAL, numbers[column], errno.EPERM)
    for rule in rules(counted):
        lines += _follow(rule, ARGUED[rule.name][column])
    lines += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _when(test: int, value: int | None, error: int) -> list[Line]:
    return [] if value is None else [(test, 0, 1, value), (_RETURN, 0, 0, _ERRNO | error)]


def _follow(rule: Rule, number: int | None) -> Iterator[Line]:
    assert number is not None
    count = len(rule.values)
    yield _EQUAL, 0, count + 4, number
    yield _LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument
    yield _AND, 0, 0, rule.mask
    for left, value in zip(reversed(range(count)), rule.values, strict=True):
        # To the verdict or behind it.
        yield (_EQUAL, left + 1, 0, value) if rule.only else (_EQUAL, left, int(left == 0), value)
    yield _RETURN, 0, 0, _ERRNO | rule.error
    yield _LOAD, 0, 0, _NUMBER


def profile(*, counted: bool = True) -> str:
    """The same rules in the form of docker and podman. Both join several tests of one argument by "or"."""

    def entry(names: list[str], code: int, *test: object) -> dict[str, object]:
        args = [dict(zip(("index", "value", "valueTwo", "op"), test, strict=True))] if test else []
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": code, "args": args}

    entries = [entry(list(refused(counted)), errno.EPERM), entry(["clone3"], errno.ENOSYS)]
    for rule in rules(counted):
        entries += [entry([rule.name], rule.error, rule.argument, *test) for test in _tests(rule)]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": entries})


def _tests(rule: Rule) -> Iterator[tuple[int, int, str]]:
    if not rule.only:
        yield from ((rule.mask, value, "SCMP_CMP_MASKED_EQ") for value in rule.values)
        return
    small = [value for value in rule.values if value < 64]
    yield from ((other, 0, "SCMP_CMP_EQ") for other in range(max(small)) if other not in small)
    yield max(small), 0, "SCMP_CMP_GT"
