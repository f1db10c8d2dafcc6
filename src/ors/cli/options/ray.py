"""`ors serve --ray`: servers as actors of a Ray cluster, until Ctrl-C."""

import json
import math
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ors import Environment
from ors.cli.errors import Unreachable, Wrong, one_line
from ors.cli.options.shared import Grouped

__all__ = ["FLAGS", "OnRay", "connected", "ray_flags"]

F = TypeVar("F", bound=Callable[..., Any])
MISSING = "--ray needs Ray, which is an extra: pip install 'ors-kit[ray]'"
POLL_SECONDS = 0.2
USUAL_HOSTS = 2
OWN_FLAGS = {"CPU": "--num-cpus", "GPU": "--num-gpus"}
IN_USE = "This cluster serves something as {namespace!r} already: give this another --ray-namespace"
ABSENT = "No Ray cluster answers at {address}: start one with `ray start --head`, or name another"
UNFIT = "The Ray cluster at {address} cannot be used: {why}"


class _Amount(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """An amount of a resource that Ray knows by name."""

    name = "NAME=AMOUNT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the name and the amount."""
        name, _, text = str(value).partition("=")
        if name in OWN_FLAGS:
            self.fail(f"use {OWN_FLAGS[name]} for that", param, ctx)
        try:
            amount = float(text)
        except ValueError:
            amount = 0.0
        if not name or not 0 < amount < math.inf:
            self.fail(f"{value!r} is no amount, such as license=2", param, ctx)
        return name, amount


class _Mapping(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A JSON object, or a file that holds one."""

    name = "JSON|FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the object."""
        try:
            text = str(value) if str(value).startswith("{") else Path(value).read_text(encoding="utf-8")
            found = json.loads(text)
        except (OSError, ValueError) as error:
            self.fail(f"{value!r} is neither JSON nor a file of it: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail(f"{value!r} is no JSON object", param, ctx)
        return found


FLAGS: list[tuple[str, dict[str, Any]]] = [
    (
        "--ray",
        {
            "metavar": "[ADDRESS]",
            "is_flag": False,
            "flag_value": "auto",
            "help": "Serve in the Ray cluster at this address; without one, in the cluster of this machine.",
        },
    ),
    ("--hosts", {"type": click.IntRange(1), "help": "Hosts at the start.  [default: --min-hosts, or 2]"}),
    (
        "--min-hosts",
        {"type": click.IntRange(1), "help": "Least number of hosts when autoscaling."},
    ),
    (
        "--max-hosts",
        {
            "type": click.IntRange(1),
            "help": "Greatest number of hosts. Autoscaling goes down to --min-hosts, or else --hosts.",
        },
    ),
    (
        "--sessions-per-host",
        {
            "type": click.IntRange(1),
            "default": 100,
            "show_default": True,
            "help": "Target number of sessions per host when autoscaling.",
        },
    ),
    (
        "--fronts",
        {
            "type": click.IntRange(0),
            "default": 0,
            "show_default": True,
            "help": "Number of routers, which listen on --port, one per node.",
        },
    ),
    (
        "--num-cpus",
        {
            "type": click.FloatRange(0.01),  # Ray places an actor without any anywhere
            "default": 1.0,
            "show_default": True,
            "help": "CPUs per host, at least 0.01.",
        },
    ),
    (
        "--num-gpus",
        {"type": click.FloatRange(0), "default": 0.0, "show_default": True, "help": "GPUs per host."},
    ),
    (
        "--resource",
        {"type": _Amount(), "multiple": True, "help": "Another resource of each host. Repeatable."},
    ),
    (
        "--ray-namespace",
        {
            "default": "ors",
            "show_default": True,
            "help": "Name of this deployment among those of the cluster.",
        },
    ),
    (
        "--runtime-env",
        {"type": _Mapping(), "help": "Ray's runtime environment: packages and variables of the hosts."},
    ),
]


def ray_flags(command: F) -> F:
    """Adds the flags of Ray."""
    for name, options in reversed(FLAGS):
        command = click.option(name, cls=Grouped, group="Ray", **options)(command)
    return command


@dataclass(frozen=True)
class OnRay:
    """The values of the Ray flags."""

    ray: str | None
    hosts: int | None
    min_hosts: int | None
    max_hosts: int | None
    sessions_per_host: int
    fronts: int
    num_cpus: float
    num_gpus: float
    resource: Sequence[tuple[str, float]]
    ray_namespace: str
    runtime_env: Mapping[str, Any] | None

    def numbers(self) -> dict[str, int]:
        """Returns the number of hosts at the start, the least and the greatest.

        Raises:
            Wrong: the flags contradict each other.
        """
        if self.min_hosts is not None and self.max_hosts is None:
            raise Wrong("--min-hosts needs --max-hosts: between them, the number of servers follows the load")
        first = self.hosts or self.min_hosts or min(USUAL_HOSTS, self.max_hosts or USUAL_HOSTS)
        least, most = self.min_hosts or first, self.max_hosts or first
        if not least <= first <= most:
            given = f"--min-hosts {least}, --hosts {first}, --max-hosts {most}"
            raise Wrong(f"{given}: none of these may be more than the next")
        return {"hosts": first, "min_hosts": least, "max_hosts": most}

    def serve(
        self,
        classes: Sequence[type[Environment]],
        announce: Callable[[Sequence[str]], None],
        **options: Any,
    ) -> None:
        """Runs hosts in the cluster until a signal comes; `options` go to `deploy`."""
        assert self.ray is not None
        options |= self.numbers()
        ray = connected(self.ray)
        try:
            for module in {cls.__module__ for cls in classes}:
                # A TARGET may be a file that the hosts do not have: its code is sent with the classes.
                ray.cloudpickle.register_pickle_by_value(sys.modules[module])
            deployment = self._deployed(ray, classes, options)
            _serve(deployment, announce)
        finally:
            ray.shutdown()

    def _deployed(self, ray: Any, classes: Sequence[type[Environment]], options: Mapping[str, Any]) -> Any:
        from ors.cluster.ray import NamespaceInUse, deploy

        try:
            return deploy(
                classes,
                sessions_per_host=self.sessions_per_host,
                fronts=self.fronts,
                num_cpus=self.num_cpus,
                num_gpus=self.num_gpus,
                resources=dict(self.resource),
                runtime_env=self.runtime_env,
                namespace=self.ray_namespace,
                **options,
            )
        except NamespaceInUse:
            raise Wrong(IN_USE.format(namespace=self.ray_namespace)) from None
        except (TypeError, ValueError) as error:
            raise Wrong(f"Ray refuses to start servers so: {one_line(error)}") from error
        except ray.exceptions.RayError as error:
            raise Unreachable(f"A server does not start: {_last_line(error)}") from error


def connected(address: str) -> Any:
    """Returns the `ray` module, connected to the cluster at that address.

    Raises:
        Wrong: Ray is not installed.
        Unreachable: there is no cluster, or one that cannot be joined.
    """
    try:
        import ray
    except ImportError:
        raise Wrong(MISSING) from None
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise Unreachable(ABSENT.format(address=address)) from error
    except RuntimeError as error:  # for example another version of Ray or Python
        raise Unreachable(UNFIT.format(address=address, why=one_line(error))) from error
    return ray


def _last_line(error: Exception) -> str:
    """Returns why a host died: the last line of the stack trace that Ray reports."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), one_line(error))


def _serve(deployment: Any, announce: Callable[[Sequence[str]], None]) -> None:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopped.set())
    try:
        announce(deployment.urls())
        # One of Ray's threads may get the signal, so this one checks now and then.
        while not stopped.wait(POLL_SECONDS):
            pass
    finally:
        deployment.stop()
