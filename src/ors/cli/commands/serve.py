"""`ors serve`: serves environments over HTTP until Ctrl-C. `ors run` shares its options and how it serves."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ors import Environment, Limits, Server
from ors.cli.errors import Unreachable, WrongUsage, one_line
from ors.cli.options import serving as flags
from ors.cli.options import shared
from ors.cli.options.shared import flag
from ors.cli.output import logging as logs
from ors.cli.output.banner import Banner
from ors.cli.targets.connect import ray_cluster
from ors.cli.targets.process import started, supervise
from ors.cli.targets.resolve import built, environments, given_settings, parameters, roots
from ors.cluster.worker import VARIABLE, WorkerConfig
from ors.server import ApiKey, is_loopback
from ors.server.process.system import leave

if TYPE_CHECKING:
    from ors.recording import SessionRecorder

RELOAD_LAST_SECONDS = 30.0
"""Extra time to stop, after grace period and teardowns, before a server is killed."""
SHOWS_SOURCE = (
    "--return-errors line exposes your source code: it needs a single server on loopback, without workers, "
    "Ray, --insecure or a proxy"
)


@dataclass(frozen=True, kw_only=True)
class Serving(flags.Address):
    """The options that `ors serve` and `ors run` share."""

    reloading: bool = flag(
        "Restart when a file changes. Running calls have --grace-seconds to finish.",
        names=("--reload", "reloading"),
        is_flag=True,
    )
    return_errors: str = flag(
        "What clients see of an exception: nothing, its message, the message and your line of code "
        "that raised it (loopback only), or the stack trace.",
        type=click.Choice(["none", "exception", "line", "stacktrace"]),
        default="exception",
    )
    record: Path | None = flag(
        "Record every session as an episode of a run in this folder.", type=shared.FOLDER
    )
    record_private: bool = flag("Also record the private fields of tasks.", is_flag=True)
    as_json: bool = flag("Print JSON.", names=("--json", "as_json"), is_flag=True)
    access: flags.Access
    workers: flags.Workers
    limits: Limits
    inherited: flags.Inherited = flags.NOTHING
    served: Sequence[str] = ()
    variants: Sequence[str] = ()
    """NAME:TARGET, as `--as` gives them."""
    keys: Sequence[ApiKey] = ()
    lacking: Callable[[str], str] = lambda problem: ""
    """What helps against a problem with the tasks of an environment."""

    def prepared(
        self, targets: Sequence[str], names: Sequence[str] = (), *, on_ray: bool = False
    ) -> "Serving":
        """Checks the options, and takes over what a parent passes on."""
        inherited = flags.Inherited.taken()
        flags.check_processes(self.workers, self.reloading, on_ray=on_ray)
        self.access.check_certificate()
        keys = self.access.all_keys(inherited.keys)
        ready = replace(self, inherited=inherited, keys=keys, served=targets, variants=names)
        ready.check(alone=not (self.workers.supervised or on_ray))
        return ready

    @property
    def secrets(self) -> Sequence[str]:
        """Keys that child processes would otherwise not have."""
        return self.access.api_key or self.inherited.keys

    @property
    def private(self) -> bool:
        return is_loopback(self.host) and not self.access.insecure

    def check(self, *, alone: bool) -> None:
        """Checks what depends on the address; `alone`: in this process only."""
        if self.record_private and self.record is None:
            raise WrongUsage("--record-private needs --record FOLDER")
        flags.check_exposure(self.host, bool(self.keys or self.access.insecure), "Set a key in ORS_API_KEYS")
        if self.return_errors == "line" and not (self.private and alone):
            raise WrongUsage(SHOWS_SOURCE)

    def delegate(self) -> None:
        """Lets child processes serve, and ends the command; returns if this process serves."""
        inherited = self.inherited
        if self.reloading and inherited.listener is None:
            raise click.exceptions.Exit(self._reload())
        if self.workers.supervised and inherited.worker is None and inherited.listener is None:
            self.recorders()  # if it cannot record, this says so once, and not every worker
            raise click.exceptions.Exit(self._supervise())
        for number in (signal.SIGINT, signal.SIGTERM):  # until the server sets its own handlers
            signal.signal(number, lambda number, frame: leave())

    def _reload(self) -> int:
        limits = self.limits
        ending_seconds = limits.grace_seconds + 2 * limits.teardown_seconds + RELOAD_LAST_SECONDS
        listen = partial(flags.listener, self.host)
        return supervise(self._roots(), listen, self.port, self.secrets, ending_seconds)

    def _supervise(self) -> int:
        from ors.cluster.handover import listeners
        from ors.cluster.supervisor import Supervisor

        with flags.in_words(self.host, self.port):
            sockets = listeners(self.host, self.port, self.workers.workers)

        def start(config: WorkerConfig) -> subprocess.Popen[bytes]:
            # Only the supervisor writes to standard output.
            variables, descriptors = {VARIABLE: config.text()}, config.descriptors
            return started(variables, descriptors, self.secrets, subprocess.DEVNULL)

        def say(line: str) -> None:
            lines.write(json.dumps({"message": line}) if self.log_json else line)

        def announce(url: str, names: Sequence[str]) -> None:
            self.announce([url], names)

        # These lines never block the supervisor.
        with closing(logs.TextLines(sys.stderr.fileno())) as lines:
            drain, memory = self.workers.drain_seconds, self.workers.max_worker_memory
            return Supervisor(start, sockets, self.limits, drain, memory, announce, say).run()

    def _roots(self) -> list[Path]:
        return roots([*self.served, *(each.partition(":")[2] for each in self.variants)])

    def options(self) -> dict[str, Any]:
        return {
            "api_keys": self.keys,
            "cors_origins": self.access.cors_origin,
            "inspector": self.access.inspector,
            "limits": self.limits,
            "observers": self.recorders(),
            "return_errors": self.return_errors,
        }

    def recorders(self) -> "list[SessionRecorder]":
        if self.record is None:
            return []
        from ors.recording import REWARD, SessionRecorder
        from ors.rollouts.records import RunError, RunInfo

        config = {"command": "serve", "targets": list(self.served), "reward": REWARD}
        variant = {"settings": list(given_settings()), "names": list(self.variants)}
        config |= {name: value for name, value in variant.items() if value}
        info = RunInfo.gathered(config, kind="sessions", target=self._roots()[0])
        try:
            return [SessionRecorder(self.record, info, keep_private=self.record_private)]
        except RunError as error:
            raise WrongUsage(str(error)) from None
        except OSError as error:
            raise Unreachable(f"Cannot record to {self.record}: {error.strerror}") from None

    def serve(self, classes: Sequence[type[Environment]], how: dict[str, Any]) -> None:
        """Serves in this process, as one of several workers or alone, until it is told to stop."""
        if self.inherited.worker is not None:
            del how["slot"]  # the supervisor has given it one
        server = self._built(classes, how)
        access: dict[str, Any] = {"insecure": self.access.insecure, **self.access.certificate}
        if self.inherited.worker is not None:
            self._work(server, self.inherited.worker, access)
            return
        names = [cls.name().lower() for cls in classes]

        access["on_start"] = lambda url: self.announce([url], names)
        runner = server.runner(self.host, self.port, **access)
        socket = self.inherited.listener or flags.listener(self.host, self.port)
        if self.inherited.lifeline is not None:
            self.inherited.lifeline.end = runner.orphaned
        with self.logging():
            runner.run(sockets=[socket])
            runner.leave()

    def _work(self, server: Server, config: WorkerConfig, access: dict[str, Any]) -> None:
        from ors.cluster.worker import Worker

        assert self.inherited.lifeline is not None
        with self.logging():
            Worker(server, self.host, config, self.inherited.lifeline, **access).run()

    def _built(self, classes: Sequence[type[Environment]], how: dict[str, Any]) -> Server:
        """Builds the server. What it records, its inspector shows."""
        server = built(classes, **how)
        if self.record is not None:
            from ors.inspector import RunsApi
            from ors.rollouts.records.writer import declare

            declare(self.record, {cls.name().lower(): cls._rewards for cls in classes})
            server.show_runs(RunsApi(self.record))
        return server

    def announce(self, urls: Sequence[str], names: Sequence[str]) -> None:
        inspector = self.access.inspector
        recording = f"Recording sessions to {self.record} (reward: the sum of all steps)"
        banner = Banner(
            inspector=self.private if inspector is None else inspector,
            private=is_loopback(self.host),
            key=next((key.secret for key in self.keys), None),
            notes=[recording] if self.record else [],
            as_json=self.as_json,
            lacking=self.lacking,
        )
        banner.show(urls, names)


def serving_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `ors serve` without those of Ray, passed to the command as one `serving`."""
    return shared.stacked(
        shared.flags_of(Serving),
        shared.options("Access", "access", flags.Access),
        flags.limit_flags,
        shared.options("Workers", "workers", flags.Workers),
    )(shared.gathered("serving", Serving)(command))


@click.command(
    cls=shared.Command,
    examples=["ors serve adder", "ors serve adder/src/adder/environment.py:Adder --port 8000 --reload"],
)
@click.argument("targets", nargs=-1, type=shared.TARGET, metavar="[TARGET]...")
@parameters
@click.option(
    "--as",
    "names",
    multiple=True,
    metavar="NAME:TARGET",
    help="Serve the environment of TARGET as NAME, with parameters of its own. Repeatable.",
)
@serving_flags
@shared.options("Sandboxes", "images", shared.ImageFlags)
@shared.options("Ray", "on_ray", flags.OnRay)
def serve(
    targets: Sequence[str],
    names: Sequence[str],
    serving: Serving,
    images: shared.ImageFlags,
    on_ray: flags.OnRay,
) -> None:
    """Serve environments over HTTP.

    Each TARGET is package.module, package.module:Class, path/file.py, path/file.py:Class, a folder, or
    LIBRARY:NAME, as in gymnasium:CartPole-v1.
    Without :Class, all environments in it are served.
    """
    images.tell()
    names = [each for each in names if each]
    if not targets and not names:
        raise WrongUsage("Give a TARGET, or --as NAME:TARGET")
    flags.check_ray(on_ray, serving.access)
    if on_ray.ray is not None and not shared.given("host"):
        serving = replace(serving, host="")  # the address of each node
    serving = serving.prepared(targets, names, on_ray=on_ray.ray is not None)
    if on_ray.ray is None:
        serving.delegate()
    options = serving.options()
    classes = environments(targets, names=names)
    if on_ray.ray is None:
        serving.serve(classes, {"slot": serving.workers.slot, **options})
    else:
        with serving.logging(), ray_cluster(on_ray.ray) as ray:
            _serve_on_ray(ray, on_ray, serving, classes, options)


def _serve_on_ray(
    ray: Any,
    on_ray: flags.OnRay,
    serving: Serving,
    classes: Sequence[type[Environment]],
    options: dict[str, Any],
) -> None:
    from ors.cluster.ray import NamespaceInUse, deploy

    for module in {cls.__module__ for cls in classes}:
        # A TARGET may be a file that the hosts do not have, so the code is sent with the classes.
        ray.cloudpickle.register_pickle_by_value(sys.modules[module])
    try:
        deployment = deploy(
            classes,
            host=serving.host,
            port=serving.port,
            insecure=serving.access.insecure,
            drain_seconds=serving.workers.drain_seconds,
            **on_ray.options(),
            **options,
        )
    except NamespaceInUse:
        used = f"This cluster already serves something as {on_ray.ray_namespace!r}"
        raise WrongUsage(f"{used}: choose another --ray-namespace") from None
    except (TypeError, ValueError) as error:
        raise WrongUsage(f"Ray cannot start hosts with these options: {one_line(error)}") from error
    except ray.exceptions.RayError as error:
        *_, cause = [line.strip() for line in str(error).splitlines() if line.strip()] or [one_line(error)]
        raise Unreachable(f"A host failed to start: {cause}") from error  # Ray's text is a stack trace
    deployment.run(lambda urls: serving.announce(urls, [cls.name().lower() for cls in classes]))
