"""The system calls that programs in a sandbox may not make, as a filter for the kernel or for an engine.

Everything that is newer than this list is refused too. The kernel's form is classic BPF, see seccomp(2).
"""

import errno
import json
import platform
import struct
from functools import cache

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
CLONE3 = (435, 435)  # its flags are in memory, which a filter cannot read; the C library falls back to clone
CLONE = (56, 220)
SOCKET = (41, 198)
SOCKETPAIR = (53, 199)
IOCTL = (16, 29)
PERSONALITY = (135, 92)

PRLIMIT = (302, 261)
MMAP = (9, 222)
STOP, AGENT = 19, 1
"""The signal that nobody can ignore, and the process that programs must leave alone."""
# name, (x86_64, aarch64), index of the argument, its values
FORBIDDEN: tuple[tuple[str, tuple[int, int], int, tuple[int, ...]], ...] = (
    ("kill", (62, 129), 1, (STOP,)),
    ("tkill", (200, 130), 1, (STOP,)),
    ("tgkill", (234, 131), 2, (STOP,)),
    ("rt_sigqueueinfo", (129, 138), 1, (STOP,)),
    ("rt_tgsigqueueinfo", (297, 240), 2, (STOP,)),
    ("pidfd_send_signal", (424, 424), 1, (STOP,)),
    ("fcntl", (72, 25), 1, (10, 1024)),  # F_SETSIG sends signals, F_SETLEASE makes whoever opens a file wait
    ("setpriority", (141, 140), 0, (2,)),  # all processes of a user
    ("setpriority", (141, 140), 1, (AGENT,)),
    ("sched_setaffinity", (203, 122), 0, (AGENT,)),
    ("sched_setscheduler", (144, 119), 0, (AGENT,)),
    ("sched_setparam", (142, 118), 0, (AGENT,)),
    ("sched_setattr", (314, 274), 0, (AGENT,)),
)
"""Arguments that stop the agent, or a process that it waits for, or slow it down."""

NEWEST = 462
NAMESPACES = 0x7E020000
"""Flags of clone that make name spaces."""
FAMILIES = (1, 2, 10, 16)
"""Sockets that programs may make: unix, IPv4, IPv6, netlink. Not vsock, which no name space holds."""
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: they type into the terminal of somebody else."""
SHARED = 0x21
"""MAP_SHARED and MAP_ANONYMOUS."""
PERSONALITIES = (0, 0xFFFFFFFF)
"""Linux, and the question which one it is."""


ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The column of an architecture in these tables, and its name in the kernel's audit."""

_LOAD, _EQUAL, _GREATER, _RETURN, _AND = 0x20, 0x15, 0x25, 0x06, 0x54
_NUMBER, _ARCH = 0, 4
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


@cache
def program(machine: str | None = None, *, counted: bool = True) -> bytes:
    """The filter in the kernel's form, for this machine or another."""
    column, audit = ARCHITECTURES[machine or platform.machine()]
    code = _Code()
    code.add(_LOAD, _ARCH)
    code.unless(_EQUAL, audit, _KILL)
    code.add(_LOAD, _NUMBER)
    code.when(_GREATER, NEWEST, _ERRNO | errno.ENOSYS)  # the calls of the x32 interface too
    code.when(_EQUAL, CLONE3[column], _ERRNO | errno.ENOSYS)
    for numbers in (*DENIED.values(), *(() if counted else UNCOUNTED.values())):
        number = numbers[column]
        if number is not None:
            code.when(_EQUAL, number, _ERRNO | errno.EPERM)
    for bit in _bits(NAMESPACES):
        code.refuse(CLONE[column], 0, (bit,), mask=bit)
    code.refuse(IOCTL[column], 1, TERMINAL_INPUT)
    for _, calls, index, values in FORBIDDEN:
        code.refuse(calls[column], index, values)
    if not counted:
        code.refuse(MMAP[column], 3, (SHARED,), mask=SHARED)
    code.only(PRLIMIT[column], 0, (0,), _ERRNO | errno.EPERM)
    code.only(PERSONALITY[column], 0, PERSONALITIES, _ERRNO | errno.EPERM)
    code.only(SOCKET[column], 0, FAMILIES, _ERRNO | errno.EAFNOSUPPORT)
    code.only(SOCKETPAIR[column], 0, FAMILIES, _ERRNO | errno.EAFNOSUPPORT)
    code.add(_RETURN, _ALLOW)
    return b"".join(struct.pack("=HBBI", *line) for line in code.lines)


class _Code:
    def __init__(self) -> None:
        self.lines: list[tuple[int, int, int, int]] = []

    def add(self, operation: int, value: int, then: int = 0, otherwise: int = 0) -> None:
        """Adds one instruction; a jump skips `then` or `otherwise` instructions."""
        self.lines.append((operation, then, otherwise, value))

    def when(self, test: int, value: int, verdict: int) -> None:
        self.add(test, value, 0, 1)
        self.add(_RETURN, verdict)

    def unless(self, test: int, value: int, verdict: int) -> None:
        self.add(test, value, 1, 0)
        self.add(_RETURN, verdict)

    def refuse(self, number: int, index: int, values: tuple[int, ...], *, mask: int = 0xFFFFFFFF) -> None:
        """Refuses a call if the bits of `mask` in an argument are one of the values."""
        self.add(_EQUAL, number, 0, 3 + 2 * len(values))
        self.add(_LOAD, 16 + 8 * index)
        self.add(_AND, mask)
        for value in values:
            self.when(_EQUAL, value, _ERRNO | errno.EPERM)
        self.add(_LOAD, _NUMBER)

    def only(self, number: int, index: int, values: tuple[int, ...], verdict: int) -> None:
        """Returns the verdict if the argument of a call is none of the values."""
        self.add(_EQUAL, number, 0, 2 + len(values) + 1)
        self.add(_LOAD, 16 + 8 * index)
        for place, value in enumerate(values):
            self.add(_EQUAL, value, len(values) - place, 0)
        self.add(_RETURN, verdict)
        self.add(_LOAD, _NUMBER)


def profile(*, counted: bool = True) -> str:
    """The same rules in the form of docker and podman. Both join several tests of one argument by "or"."""

    def rule(names: list[str], code: int, *test: object) -> dict[str, object]:
        args = [dict(zip(("index", "value", "valueTwo", "op"), test, strict=True))] if test else []
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": code, "args": args}

    low, masked = 0xFFFFFFFF, "SCMP_CMP_MASKED_EQ"
    sockets, wrong = ["socket", "socketpair"], errno.EAFNOSUPPORT
    others = [family for family in range(max(FAMILIES)) if family not in FAMILIES]
    rules = [
        rule([*DENIED, *(() if counted else UNCOUNTED)], errno.EPERM),
        rule(["clone3"], errno.ENOSYS),
        *(rule(["clone"], errno.EPERM, 0, bit, bit, masked) for bit in _bits(NAMESPACES)),
        *(rule(["ioctl"], errno.EPERM, 1, low, value, masked) for value in TERMINAL_INPUT),
        *(
            rule([name], errno.EPERM, index, low, value, masked)
            for name, _, index, values in FORBIDDEN
            for value in values
        ),
        *([] if counted else [rule(["mmap"], errno.EPERM, 3, SHARED, SHARED, masked)]),
        rule(["prlimit64"], errno.EPERM, 0, 0, 0, "SCMP_CMP_NE"),
        rule(["personality"], errno.EPERM, 0, 0, 0, "SCMP_CMP_NE"),
        *(rule(sockets, wrong, 0, family, 0, "SCMP_CMP_EQ") for family in others),
        rule(sockets, wrong, 0, max(FAMILIES), 0, "SCMP_CMP_GT"),
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})


def _bits(flags: int) -> list[int]:
    return [1 << place for place in range(32) if flags >> place & 1]
