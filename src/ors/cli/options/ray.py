"""`ors serve --ray`: serves in a Ray cluster until Ctrl-C."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from ors import Environment
from ors.cli.errors import Unreachable, WrongUsage, one_line
from ors.cli.options.shared import JSON, flag

MISSING = "--ray needs Ray: pip install 'ors-kit[ray]'"
OWN_FLAGS = {"CPU": "--num-cpus", "GPU": "--num-gpus"}
TAKEN = "This cluster already serves something as {namespace!r}: choose another --ray-namespace"
ABSENT = "No Ray cluster answers at {address}: start one with `ray start --head`, or use another address"
UNFIT = "The Ray cluster at {address} cannot be used: {why}"


class _Amount(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    name = "NAME=AMOUNT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, _, text = str(value).partition("=")
        if name in OWN_FLAGS:
            self.fail(f"use {OWN_FLAGS[name]} for that", param, ctx)
        try:
            amount = float(text)
        except ValueError:
            amount = 0.0
        if not name or not 0 < amount < math.inf:
            self.fail(f"{value!r} is not an amount, such as license=2", param, ctx)
        return name, amount


class _Bounds(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A number of hosts, or MIN:MAX."""

    name = "N|MIN:MAX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        least, _, most = str(value).partition(":")
        numbers = [int(word) for word in (least, most or least) if word.isdigit()]
        if len(numbers) < 2 or not 1 <= numbers[0] <= numbers[1]:
            self.fail(f"{value!r} is neither a number of 1 or more nor MIN:MAX", param, ctx)
        return numbers[0], numbers[1]


BOUNDS = _Bounds()


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
        "Target number of sessions per host when autoscaling.", type=click.IntRange(1), default=100
    )
    routers: int = flag(
        "Number of routers, at most one per node. They listen on --port.", type=click.IntRange(0), default=0
    )
    # Ray places an actor without CPUs anywhere.
    num_cpus: float = flag("CPUs of each host, at least 0.01.", type=click.FloatRange(0.01), default=1.0)
    num_gpus: float = flag("GPUs of each host.", type=click.FloatRange(0), default=0.0)
    resource: Sequence[tuple[str, float]] = flag(
        "Other Ray resource of each host. Repeatable.", type=_Amount(), multiple=True
    )
    ray_namespace: str = flag("Name of this deployment in the cluster.", default="ors")
    runtime_env: Mapping[str, Any] | None = flag(
        "Ray runtime environment of the hosts: JSON or @file.", type=JSON
    )

    def serve(
        self,
        classes: Sequence[type[Environment]],
        announce: Callable[[Sequence[str]], None],
        **options: Any,
    ) -> None:
        """Runs hosts in the cluster until a signal arrives. `options` go to `deploy`."""
        assert self.ray is not None
        with connected(self.ray) as ray:
            for module in {cls.__module__ for cls in classes}:
                # A TARGET may be a file that the hosts do not have, so the code is sent with the classes.
                ray.cloudpickle.register_pickle_by_value(sys.modules[module])
            self._deployed(ray, classes, options).run(announce)

    def _deployed(self, ray: Any, classes: Sequence[type[Environment]], options: Mapping[str, Any]) -> Any:
        from ors.cluster.ray import NamespaceInUse, deploy

        least, most = self.hosts
        try:
            return deploy(
                classes,
                hosts=least,
                min_hosts=least,
                max_hosts=most,
                sessions_per_host=self.sessions_per_host,
                routers=self.routers,
                num_cpus=self.num_cpus,
                num_gpus=self.num_gpus,
                resources=dict(self.resource),
                runtime_env=self.runtime_env,
                namespace=self.ray_namespace,
                **options,
            )
        except NamespaceInUse:
            raise WrongUsage(TAKEN.format(namespace=self.ray_namespace)) from None
        except (TypeError, ValueError) as error:
            raise WrongUsage(f"Ray cannot start hosts with these options: {one_line(error)}") from error
        except ray.exceptions.RayError as error:
            raise Unreachable(f"A host does not start: {_last_line(error)}") from error


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connects to the cluster at that address while the block runs; yields the module `ray`."""
    try:
        import ray
    except ImportError:
        raise WrongUsage(MISSING) from None
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise Unreachable(ABSENT.format(address=address)) from error
    except RuntimeError as error:  # for example another version of Ray or Python
        raise Unreachable(UNFIT.format(address=address, why=one_line(error))) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _last_line(error: Exception) -> str:
    """Cause of a failed host: Ray's text is a stack trace, which ends with it."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), one_line(error))
