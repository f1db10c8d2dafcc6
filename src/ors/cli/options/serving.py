"""Options of commands that listen: who may call, workers, limits, Ray; and what excludes each other."""

import errno
import math
import os
import socket
import ssl
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args, get_type_hints

import click

from ors import Limits
from ors.cli.errors import Unreachable, WrongUsage
from ors.cli.options.shared import (
    BYTES,
    COUNT,
    INDEX,
    JSON,
    PORT,
    Parsed,
    flag,
    gathered,
    given,
    name_of,
    stacked,
    typed,
    under,
)
from ors.cli.output import logging as logs
from ors.cli.settings import erase_secrets
from ors.cli.targets.process import LISTENER
from ors.cluster.worker import VARIABLE, WorkerConfig
from ors.server import ApiKey, is_loopback
from ors.server.process.runner import Runner, bound
from ors.server.process.system import LIFELINE, Lifeline
from ors.server.sessions.shared import MAX_SLOT

if TYPE_CHECKING:
    pass

EXPOSED = (
    "On {host}, anyone who can reach this machine could list all tasks with their answers and run the tools. "
    "{remedy}, or pass --insecure if this is intended"
)


class _Key(Parsed):
    envvar_list_splitter = ","


EXISTING = click.Path(exists=True, dir_okay=False)


def check_exposure(host: str, secured: bool, remedy: str) -> None:
    """Checks that an address open to the network is `secured` by a key or by --insecure."""
    if not secured and not is_loopback(host):
        raise WrongUsage(EXPOSED.format(host=host or "the addresses of the nodes", remedy=remedy))


@dataclass(frozen=True)
class Address:
    """Where a command listens, and what it logs."""

    host: str = flag(
        "Address to listen on. Anything but loopback needs an API key or --insecure.", default="127.0.0.1"
    )
    port: int = flag("Port to listen on; 0 picks a free one.", type=PORT, default=8080)
    log_level: str = flag(
        "Minimum level to log to standard error.", type=click.Choice(logs.LEVELS), default="info"
    )
    log_json: bool = flag("Log one JSON object per line.", is_flag=True)

    def logging(self) -> AbstractContextManager[logs.TextLines]:
        return closing(logs.configure(self.log_level, self.log_json))

    def run(self, runner: Runner) -> None:
        with self.logging():
            runner.run(sockets=[listener(self.host, self.port)])


@dataclass(frozen=True)
class Listening:
    insecure: bool = flag("Allow any address without an API key.", is_flag=True)
    cors_origin: Sequence[str] = flag(
        "Origin whose web pages may call the server. Repeatable.", multiple=True, metavar="ORIGIN"
    )
    ssl_certfile: str | None = flag("TLS certificate; enables https.", type=EXISTING)
    ssl_keyfile: str | None = flag("Private key of the certificate.", type=EXISTING)

    def check_certificate(self) -> None:
        if self.ssl_certfile is None:
            if self.ssl_keyfile is not None:
                raise WrongUsage("--ssl-keyfile needs --ssl-certfile")
            return
        try:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            # Without a password, OpenSSL would ask for one at the terminal.
            tls.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, password="")
        except (OSError, ValueError) as error:
            raise WrongUsage(f"The certificate or its key cannot be used: {error}") from None

    @property
    def certificate(self) -> dict[str, str | None]:
        return {"ssl_certfile": self.ssl_certfile, "ssl_keyfile": self.ssl_keyfile}


@dataclass(frozen=True)
class Access(Listening):
    api_key: Sequence[str] = flag(
        "API key that clients must send. Repeatable. Safer: ORS_API_KEYS, separated by commas.",
        type=_Key("[NAME=]SECRET", str),
        multiple=True,
        envvar="ORS_API_KEYS",
    )
    api_key_file: Path | None = flag(
        "File with one key per line: SECRET or NAME=SECRET, optionally with sessions=N or private.",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    )
    inspector: bool | None = flag(
        "Serve the inspector page at /-/.  [default: on loopback]",
        names=("--inspector/--no-inspector",),
        default=None,
    )

    def all_keys(self, inherited: Sequence[str]) -> list[ApiKey]:
        """Keys from the command line, or else from the parent process, and from the file."""
        texts = [*(self.api_key or inherited)]
        if self.api_key_file is not None:
            lines = self.api_key_file.read_text(encoding="utf-8").splitlines()
            texts += [line for line in lines if line.strip() and not line.startswith("#")]
        try:
            return [ApiKey.parse(text, number) for number, text in enumerate(texts, 1)]
        except ValueError as error:
            raise WrongUsage(str(error)) from None


def listener(host: str, port: int) -> socket.socket:
    with in_words(host, port):
        return bound(host, port)


@contextmanager
def in_words(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            why = "the port is in use; choose another --port, or 0 for a free one"
        raise Unreachable(f"Cannot listen on {host}:{port}: {why}") from None


OWN_FLAGS = {"CPU": "--num-cpus", "GPU": "--num-gpus"}


def _processes(text: str) -> int:
    if text == "auto":
        return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if not (text.isdigit() and 1 <= int(text) <= 1024):
        raise ValueError(f"{text!r} is neither a number from 1 to 1024 nor auto")
    return int(text)


def _amount(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    if name in OWN_FLAGS:
        raise ValueError(f"use {OWN_FLAGS[name]} for that")
    with suppress(ValueError):
        if name and 0 < (amount := float(number)) < math.inf:
            return name, amount
    raise ValueError(f"{text!r} is not an amount, such as license=2")


def _bounds(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    numbers = [int(word) for word in (least, most or least) if word.isdigit()]
    if len(numbers) < 2 or not 1 <= numbers[0] <= numbers[1]:
        raise ValueError(f"{text!r} is neither a number of 1 or more nor MIN:MAX")
    return numbers[0], numbers[1]


BOUNDS = Parsed("N|MIN:MAX", _bounds)


@dataclass(frozen=True)
class Workers:
    """Number of workers, and when to replace them; the slot of a server without them."""

    workers: int = flag(
        "Worker processes on this port. Each has its own sessions and limits. A supervisor restarts workers "
        "that crash and replaces them on SIGHUP.  [default: 1, without supervisor]",
        type=Parsed("N|auto", _processes),
        default=1,
        show_default=False,
    )
    max_worker_memory: int | None = flag(
        "Replace a worker that uses more memory than this; kill it at twice that.", type=BYTES
    )
    drain_seconds: float = flag(
        "How long a replaced worker (SIGHUP) may keep its sessions.", type=click.FloatRange(0), default=3600.0
    )
    slot: int = flag(
        "Number of this server behind a router; session ids contain it.",
        type=click.IntRange(0, MAX_SLOT),
        default=0,
    )

    @property
    def supervised(self) -> str:
        """First flag that needs a supervisor, even for one worker; empty if none does."""
        names = ("workers", "max_worker_memory", "drain_seconds")
        return next((f"--{name.replace('_', '-')}" for name in names if given(name)), "")


@dataclass(frozen=True)
class OnRay:
    ray: str | None = flag(
        "Serve in the Ray cluster at this address.  [default address: this machine's cluster]",
        metavar="[ADDRESS]",
        is_flag=False,
        flag_value="auto",
    )
    hosts: tuple[int, int] = flag("Number of hosts, or bounds for autoscaling.", type=BOUNDS, default="2")
    sessions_per_host: int = flag(
        "Target number of sessions per host when autoscaling.", type=COUNT, default=100
    )
    routers: int = flag(
        "Number of routers, at most one per node. They listen on --port.", type=INDEX, default=0
    )
    # Ray places an actor without CPUs anywhere.
    num_cpus: float = flag("CPUs of each host, at least 0.01.", type=click.FloatRange(0.01), default=1.0)
    num_gpus: float = flag("GPUs of each host.", type=click.FloatRange(0), default=0.0)
    resource: Sequence[tuple[str, float]] = flag(
        "Other Ray resource of each host. Repeatable.", type=Parsed("NAME=AMOUNT", _amount), multiple=True
    )
    ray_namespace: str = flag("Name of this deployment in the cluster.", default="ors")
    runtime_env: Mapping[str, Any] | None = flag(
        "Ray runtime environment of the hosts: JSON or @file.", type=JSON
    )

    def options(self) -> dict[str, Any]:
        """What `deploy` is told of Ray."""
        least, most = self.hosts
        kept = ("sessions_per_host", "routers", "num_cpus", "num_gpus", "runtime_env")
        hosts = {"hosts": least, "min_hosts": least, "max_hosts": most}
        more = {"resources": dict(self.resource), "namespace": self.ray_namespace}
        return {name: getattr(self, name) for name in kept} | hosts | more


def _number(hint: Any) -> Parsed:
    """The type of a limit: a number of 0 or more, or "none" if it can be switched off."""
    optional = isinstance(hint, types.UnionType)
    kind = get_args(hint)[0] if optional else hint

    def read(text: str) -> float | None:
        if optional and text == "none":
            return None
        with suppress(ValueError):
            if (number := kind(text)) >= 0:
                return float(number) if kind is float else int(number)
        what = "an integer" if kind is int else "a number"
        raise ValueError(f"{text!r} is not {what} of 0 or more" + ", or none" * optional)

    return Parsed(("integer" if kind is int else "number") + "|none" * optional, read)


def limit_flags(command: Callable[..., None]) -> Callable[..., None]:
    option, hints = under("Limits"), get_type_hints(Limits)
    flags = [
        option(
            name_of(limit),
            type=_number(hints[limit.name]),
            default="none" if limit.default is None else limit.default,
            help=limit.metadata["help"],
        )
        for limit in fields(Limits)
        if limit.metadata["is_option"]
    ]
    return stacked(*flags)(gathered("limits", Limits)(command))


def check_processes(workers: Workers, reloading: bool, *, on_ray: bool = False) -> None:
    """Checks the flags that say how many processes serve, and when they are replaced."""
    if reloading:
        alone = "cannot be combined with --reload, which runs one process"
        _refuse(["max_worker_memory", "drain_seconds"], alone)
        _refuse(["retire_seconds"], "cannot be combined with --reload, which does not wait for sessions")
        if workers.workers > 1:
            raise WrongUsage(f"--workers {alone}")
    elif workers.supervised and given("slot") and not on_ray:
        raise WrongUsage(
            f"--slot cannot be combined with {workers.supervised}: each worker gets its own slot"
        )


def check_ray(on_ray: OnRay, access: Access) -> None:
    """Checks that every flag on the command line has an effect.

    Variables and files may set flags that have no effect here, except a slot and a certificate: otherwise
    session ids would not match the router, or traffic would be unencrypted.
    """
    if on_ray.ray is None:
        _refuse([each.name for each in fields(OnRay) if each.name != "ray"], "works only with --ray")
        return
    without = "cannot be combined with --ray"
    _refuse(["reloading"], without)
    _refuse(["workers", "max_worker_memory"], f"{without}: use --hosts for the number of servers")
    _refuse(["slot"], f"{without}: each host gets its own slot")
    _refuse(["retire_seconds"], f"{without}: use --drain-seconds")
    if given("record"):
        raise WrongUsage(f"--record {without}: each node has its own files")
    if access.ssl_certfile is not None:
        raise WrongUsage(f"--ssl-certfile {without}: use a proxy for https")


def _refuse(names: Iterable[str], why: str) -> None:
    for name in filter(typed, names):
        flag = "reload" if name == "reloading" else name.replace("_", "-")
        raise WrongUsage(f"--{flag} {why}")


@dataclass(frozen=True)
class Inherited:
    """What the process that has started this one passes on."""

    keys: Sequence[str] = ()
    """The API keys of its command line or environment."""
    listener: socket.socket | None = None
    lifeline: Lifeline | None = None
    worker: WorkerConfig | None = None

    @classmethod
    def taken(cls) -> Self:
        """Takes it over, before environment code can pass it to its own children."""
        erase_secrets()
        listener, lifeline, worker = (os.environ.pop(name, None) for name in (LISTENER, LIFELINE, VARIABLE))
        if worker is not None:
            config = WorkerConfig.read(worker)
            return cls(_read_keys(), lifeline=config.take(), worker=config)
        if lifeline is None:
            return cls()
        inherited = None if listener is None else socket.socket(fileno=int(listener))
        if inherited is not None:
            inherited.set_inheritable(False)
        return cls(_read_keys(), inherited, Lifeline(int(lifeline)))


NOTHING = Inherited()


def _read_keys() -> list[str]:
    with open(0, encoding="utf-8", closefd=False) as pipe:
        keys = pipe.read().split("\n")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return [key for key in keys if key]
