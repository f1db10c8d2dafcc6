"""`ors serve`: serves environments over HTTP until Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ors import Environment, Limits, Server
from ors.cli.errors import Unreachable, WrongUsage
from ors.cli.options.listening import Access, check_exposure, in_words
from ors.cli.options.listening import listener as listening
from ors.cli.options.ray import OnRay
from ors.cli.options.serving import Inherited, Workers, check_together, limit_flags
from ors.cli.options.shared import (
    TARGET,
    Command,
    ImageFlags,
    address_flags,
    as_json,
    given,
    log_flags,
    options,
)
from ors.cli.output import logging as logs
from ors.cli.output.banner import Banner
from ors.cli.targets.process import started, supervise
from ors.cli.targets.resolve import built, environments, roots
from ors.cli.targets.variants import given_settings, parameters
from ors.cluster.local.messages import VARIABLE, WorkerConfig
from ors.server import ApiKey, is_loopback
from ors.server.process.system import Lifeline, leave

if TYPE_CHECKING:
    from ors.recording import SessionRecorder
    from ors.server.process.runner import Runner

RELOAD_LAST_SECONDS = 30.0
"""Extra time to stop, after grace period and teardowns, before a server is killed."""
SHOWS_SOURCE = (
    "--return-errors line exposes your source code: it needs a single server on loopback, without workers, "
    "Ray, --insecure or a proxy"
)


@dataclass(frozen=True)
class Serving:
    targets: Sequence[str]
    names: Sequence[str]
    host: str
    port: int
    access: Access
    keys: Sequence[ApiKey]
    log_level: str
    log_json: bool
    as_json: bool
    record: Path | None
    record_private: bool

    @property
    def roots(self) -> list[Path]:
        return roots([*self.targets, *(each.partition(":")[2] for each in self.names)])

    @property
    def private(self) -> bool:
        return is_loopback(self.host) and not self.access.insecure

    def check(self, return_errors: str, *, alone: bool) -> None:
        """Checks that the options fit together; `alone`: in this process only."""
        if self.record_private and self.record is None:
            raise WrongUsage("--record-private needs --record FOLDER")
        check_exposure(self.host, bool(self.keys or self.access.insecure), "Set a key in ORS_API_KEYS")
        if return_errors == "line" and not (self.private and alone):
            raise WrongUsage(SHOWS_SOURCE)

    def runner(self, classes: Sequence[type[Environment]], server: Server) -> "Runner":
        """The server, which prints its address when it has started."""
        names = [cls.name().lower() for cls in classes]

        def started(url: str) -> None:
            self.announce([url], names)
            self.started(server)

        return server.runner(
            self.host,
            self.port,
            insecure=self.access.insecure,
            on_start=started,
            **self.access.certificate,
        )

    def started(self, server: Server, slot: int = 0) -> None:
        """Called when a server of this process listens; `slot` tells workers apart."""

    def run(self, runner: "Runner", inherited: Inherited) -> None:
        """Serves until it is told to stop, on the inherited socket if there is one."""
        listener = inherited.listener or listening(self.host, self.port)
        if inherited.line is not None:
            inherited.line.end = runner.orphaned
        with self._logging():
            runner.run(sockets=[listener])
            runner.leave()

    def work(self, server: Server, worker_config: WorkerConfig, lifeline: Lifeline) -> None:
        from ors.cluster.local.worker import Worker

        worker = Worker(
            server,
            self.host,
            worker_config,
            lifeline,
            on_start=lambda url: self.started(server, worker_config.slot),
            insecure=self.access.insecure,
            **self.access.certificate,
        )
        with self._logging():
            worker.run()

    def deploy(
        self, on_ray: OnRay, classes: Sequence[type[Environment]], drain_seconds: float, how: dict[str, Any]
    ) -> None:
        names = [cls.name().lower() for cls in classes]
        how = {"host": self.host, "port": self.port, "insecure": self.access.insecure, **how}
        with self._logging():
            on_ray.serve(classes, lambda urls: self.announce(urls, names), drain_seconds=drain_seconds, **how)

    def built(self, classes: Sequence[type[Environment]], how: dict[str, Any]) -> Server:
        """Builds the server. What it records, its inspector shows."""
        server = built(classes, **how)
        if self.record is not None:
            from ors.inspector import RunsApi
            from ors.rollouts.records.writer import declare

            declare(self.record, {cls.name().lower(): cls._rewards for cls in classes})
            server.show_runs(RunsApi(self.record))
        return server

    def options(self) -> dict[str, Any]:
        access = {"inspector": self.access.inspector, "cors_origins": self.access.cors_origin}
        return {**access, "api_keys": self.keys, "observers": self.recorders()}

    def recorders(self) -> "list[SessionRecorder]":
        if self.record is None:
            return []
        from ors.recording import REWARD, SessionRecorder
        from ors.rollouts.records import RunError, RunInfo

        config = {"command": "serve", "targets": list(self.targets), "reward": REWARD}
        variant = {"settings": list(given_settings()), "names": list(self.names)}
        config |= {name: value for name, value in variant.items() if value}
        info = RunInfo.gathered(config, kind="sessions", target=self.roots[0])
        try:
            return [SessionRecorder(self.record, info, keep_private=self.record_private)]
        except RunError as error:
            raise WrongUsage(str(error)) from None
        except OSError as error:
            raise Unreachable(f"Cannot record to {self.record}: {error.strerror}") from None

    @contextmanager
    def _logging(self) -> Iterator[None]:
        lines = logs.configure(self.log_level, self.log_json)
        try:
            yield
        finally:
            lines.close()

    def announce(self, urls: Sequence[str], names: Sequence[str]) -> None:
        inspector = self.access.inspector
        banner = Banner(
            inspector=self.private if inspector is None else inspector,
            private=is_loopback(self.host),
            key=next((key.secret for key in self.keys), None),
            notes=[f"Recording sessions to {self.record} (reward: the sum of all steps)"]
            if self.record
            else [],
            as_json=self.as_json,
        )
        banner.show(urls, names)


def serving_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `ors serve`, without those of Ray."""
    for add in (
        options("Workers", "workers", Workers),
        limit_flags,
        options("Access", "access", Access),
        options("Inherited", "inherited", Inherited),
        as_json,
        click.option("--record-private", is_flag=True, help="Also record the private fields of tasks."),
        click.option(
            "--record",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="FOLDER",
            help="Record every session as an episode of a run in this folder.",
        ),
        click.option(
            "--return-errors",
            type=click.Choice(["none", "exception", "line", "stacktrace"]),
            default="exception",
            show_default=True,
            help="What clients see of an exception: nothing, its message, also the line of your code that "
            "raised it (loopback only), or the stack trace.",
        ),
        log_flags,
        click.option(
            "--reload",
            "reloading",
            is_flag=True,
            help="Restart when a file changes. Running calls have --grace-seconds to finish.",
        ),
        address_flags,
    ):
        command = add(command)
    return command


@click.command(
    cls=Command,
    examples=["ors serve adder", "ors serve adder/src/adder/environment.py:Adder --port 8000 --reload"],
)
@click.argument("targets", nargs=-1, type=TARGET, metavar="[TARGET]...")
@parameters
@click.option(
    "--as",
    "names",
    multiple=True,
    metavar="NAME:TARGET",
    help="Serve the environment of TARGET as NAME, with parameters of its own. Repeatable.",
)
@serving_flags
@options("Sandboxes", "images", ImageFlags)
@options("Ray", "on_ray", OnRay)
def serve(
    targets: Sequence[str],
    names: Sequence[str],
    host: str,
    port: int,
    reloading: bool,
    return_errors: str,
    inherited: Inherited,
    workers: Workers,
    on_ray: OnRay,
    access: Access,
    images: ImageFlags,
    limits: Limits,
    **shown: Any,
) -> None:
    """Serve environments over HTTP.

    Each TARGET is package.module, package.module:Class, path/file.py, path/file.py:Class, a folder, or
    LIBRARY:NAME, as in gymnasium:CartPole-v1.
    Without :Class, all environments in it are served.
    """
    inherited.take()
    images.tell()
    names = [each for each in names if each]
    if not targets and not names:
        raise WrongUsage("Give a TARGET, or --as NAME:TARGET")
    check_together(on_ray, workers, access, reloading)
    access.check_certificate()
    host = "" if on_ray.ray is not None and not given("host") else host  # on Ray, each node's address
    serving = Serving(targets, names, host, port, access, access.all_keys(inherited.keys), **shown)
    serving.check(return_errors, alone=not (workers.supervised or on_ray.ray))
    if on_ray.ray is None:
        by_others(serving, inherited, workers, limits, reloading)
    how = {**serving.options(), "limits": limits, "return_errors": return_errors}
    classes = environments(serving.targets, names=serving.names)
    if on_ray.ray is not None:
        serving.deploy(on_ray, classes, workers.drain_seconds, how)
    else:
        alone(serving, inherited, classes, {"slot": workers.slot, **how})


def by_others(
    serving: Serving, inherited: Inherited, workers: Workers, limits: Limits, reloading: bool
) -> None:
    """Lets child processes serve, and ends the command; returns if this process serves."""
    if reloading and inherited.fd is None:
        raise click.exceptions.Exit(_reload(serving, limits))
    if workers.supervised and not inherited.is_child:
        serving.recorders()  # if it cannot record, this says so once, and not every worker
        raise click.exceptions.Exit(_supervise(serving, workers, limits))
    for number in (signal.SIGINT, signal.SIGTERM):  # until the server sets its own handlers
        signal.signal(number, lambda number, frame: leave())


def alone(
    serving: Serving, inherited: Inherited, classes: Sequence[type[Environment]], how: dict[str, Any]
) -> None:
    """Serves in this process, as one of several workers or alone."""
    if inherited.worker_config is not None and inherited.line is not None:
        del how["slot"]  # the supervisor has given it one
        serving.work(serving.built(classes, how), inherited.worker_config, inherited.line)
    else:
        serving.run(serving.runner(classes, serving.built(classes, how)), inherited)


def _supervise(serving: Serving, workers: Workers, limits: Limits) -> int:
    from ors.cluster.link.handover import listeners
    from ors.cluster.local.supervisor import Supervisor

    with in_words(serving.host, serving.port):
        sockets = listeners(serving.host, serving.port, workers.workers)

    def start(worker_config: WorkerConfig) -> subprocess.Popen[bytes]:
        variables, keys = {VARIABLE: worker_config.text()}, serving.access.api_key
        # Only the supervisor writes to standard output.
        return started(variables, worker_config.descriptors, keys, subprocess.DEVNULL)

    lines = logs.TextLines(sys.stderr.fileno())  # never blocks the supervisor

    def say(line: str) -> None:
        lines.write(json.dumps({"message": line}) if serving.log_json else line)

    policy = workers.policy(limits)
    supervisor = Supervisor(start, sockets, policy, lambda url, names: serving.announce([url], names), say)
    with closing(lines):
        return supervisor.run()


def _reload(serving: Serving, limits: Limits) -> int:
    if os.name != "posix":
        raise WrongUsage("--reload needs a POSIX system")
    ending_seconds = limits.grace_seconds + 2 * limits.teardown_seconds + RELOAD_LAST_SECONDS
    listen = partial(listening, serving.host)
    return supervise(serving.roots, listen, serving.port, serving.access.api_key, ending_seconds)
