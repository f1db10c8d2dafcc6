"""`ors serve --ray`: servers as actors of a Ray cluster, until Ctrl-C."""

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ors import Environment
from ors.cli.faults import Wrong
from ors.cli.options import Grouped

__all__ = ["OnRay", "connected", "ray_flags"]

F = TypeVar("F", bound=Callable[..., Any])
MISSING = "--ray needs Ray, which is an extra: pip install 'ors-kit[ray]'"
LOOK_SECONDS = 0.2
TAKEN = "This cluster serves something as {namespace!r} already: give this another --ray-namespace"
ABSENT = "No Ray cluster answers at {address}: start one with `ray start --head`, or name another"


class _Amount(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """An amount of something that Ray knows by name."""

    name = "NAME=AMOUNT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name and the amount."""
        name, _, amount = str(value).partition("=")
        try:
            return name, float(amount)
        except ValueError:
            self.fail(f"{value!r} is no amount, such as gpu_memory=2", param, ctx)


class _Mapping(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A JSON object, or a file that holds one."""

    name = "JSON|FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The object."""
        try:
            text = str(value) if str(value).startswith("{") else Path(value).read_text(encoding="utf-8")
            found = json.loads(text)
        except (OSError, ValueError) as error:
            self.fail(f"{value!r} is neither JSON nor a file of it: {error}", param, ctx)
        return found


FLAGS: list[tuple[str, dict[str, Any]]] = [
    (
        "--ray",
        {
            "metavar": "[ADDRESS]",
            "is_flag": False,
            "flag_value": "auto",
            "help": "Serve in the Ray cluster at this address; without one, in that of this machine.",
        },
    ),
    ("--hosts", {"type": click.IntRange(1), "default": 2, "show_default": True, "help": "Servers there."}),
    ("--min-hosts", {"type": click.IntRange(1), "help": "Servers at least, and more by load."}),
    ("--max-hosts", {"type": click.IntRange(1), "help": "Servers at most."}),
    (
        "--sessions-per-host",
        {
            "type": click.IntRange(1),
            "default": 100,
            "show_default": True,
            "help": "Between the two: one server for each so many sessions.",
        },
    ),
    (
        "--fronts",
        {
            "type": click.IntRange(0),
            "default": 0,
            "show_default": True,
            "help": "Routers at --port, one a node.",
        },
    ),
    (
        "--num-cpus",
        {"type": click.FloatRange(0), "default": 1.0, "show_default": True, "help": "CPUs of each server."},
    ),
    ("--resource", {"type": _Amount(), "multiple": True, "help": "Another resource of each server."}),
    (
        "--ray-namespace",
        {
            "default": "ors",
            "show_default": True,
            "help": "A name for what is served, if the cluster serves more.",
        },
    ),
    (
        "--runtime-env",
        {"type": _Mapping(), "help": "Ray's runtime environment: the packages and variables of servers."},
    ),
]


def ray_flags(command: F) -> F:
    """Adds the flags of Ray."""
    for name, options in reversed(FLAGS):
        command = click.option(name, cls=Grouped, group="Ray", **options)(command)
    return command


@dataclass(frozen=True)
class OnRay:
    """What the flags say."""

    ray: str | None
    hosts: int
    min_hosts: int | None
    max_hosts: int | None
    sessions_per_host: int
    fronts: int
    num_cpus: float
    resource: Sequence[tuple[str, float]]
    ray_namespace: str
    runtime_env: Mapping[str, Any] | None

    def serve(
        self, classes: Sequence[type[Environment]], host: str, port: int, drain: float, options: Any
    ) -> None:
        """Runs hosts in the cluster until a signal comes."""
        assert self.ray is not None
        least = self.min_hosts or min(self.hosts, self.max_hosts or self.hosts)
        if self.max_hosts is not None and self.max_hosts < least:
            raise Wrong("--max-hosts is less than --min-hosts")
        ray = connected(self.ray)
        from ors.cluster.ray import deploy

        try:
            for module in {cls.__module__ for cls in classes}:
                # A TARGET may be a file that the hosts do not have: it travels with its classes.
                ray.cloudpickle.register_pickle_by_value(sys.modules[module])
            deployment = deploy(
                classes,
                hosts=least,
                max_hosts=self.max_hosts,
                sessions_per_host=self.sessions_per_host,
                drain_seconds=drain,
                fronts=self.fronts,
                port=port,
                host=host,
                num_cpus=self.num_cpus,
                resources=dict(self.resource),
                runtime_env=self.runtime_env,
                namespace=self.ray_namespace,
                **options,
            )
        except ValueError:
            raise Wrong(TAKEN.format(namespace=self.ray_namespace)) from None
        except ray.exceptions.RayError as error:
            raise Wrong(f"A server does not start: {error}") from None
        else:
            _serve(deployment)
        finally:
            ray.shutdown()


def connected(address: str) -> Any:
    """Ray, connected to the cluster at that address.

    Raises:
        Wrong: it is not installed, or there is no cluster.
    """
    try:
        import ray
    except ImportError:
        raise Wrong(MISSING) from None
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise Wrong(ABSENT.format(address=address)) from error
    return ray


def _serve(deployment: Any) -> None:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopped.set())
    try:
        for url in deployment.urls():
            click.echo(f"Serving on {url} (stop with Ctrl-C)")
        # One of Ray's threads may get the signal: this one looks up now and then.
        while not stopped.wait(LOOK_SECONDS):
            pass
    finally:
        deployment.stop()
