"""Rejects flags of `ors serve` that cannot be combined."""

from collections.abc import Iterable

from ors.cli.errors import WrongUsage
from ors.cli.options.access import Access
from ors.cli.options.ray import FLAGS as RAY_FLAGS
from ors.cli.options.ray import OnRay
from ors.cli.options.shared import given, typed
from ors.cli.options.workers import Workers

PROCESSES = ("--max-worker-memory", "--max-worker-sessions")


def check_together(on_ray: OnRay, workers: Workers, access: Access, reloading: bool) -> None:
    """Checks that every flag on the command line has an effect.

    Variables and files may set flags that have no effect here, except a slot and a certificate: otherwise
    session ids would not match the router, or traffic would be unencrypted.

    Raises:
        WrongUsage: a flag has no effect.
    """
    if on_ray.ray is None:
        only = [name for name, _ in RAY_FLAGS if name != "--ray"]
        _refuse(only, "works only with --ray")
    else:
        _check_ray(on_ray, access)
    if reloading:
        _refuse([*PROCESSES, "--drain-seconds"], "cannot be combined with --reload, which runs one process")
        _refuse(["--retire-seconds"], "cannot be combined with --reload, which does not wait for sessions")
        if workers.workers > 1:
            raise WrongUsage("--workers cannot be combined with --reload, which runs one process")
    elif workers.supervised and given("slot") and on_ray.ray is None:
        raise WrongUsage(
            f"--slot cannot be combined with {workers.supervised}: each worker gets its own slot"
        )


def _check_ray(on_ray: OnRay, access: Access) -> None:
    on_ray.numbers()
    _refuse(["--reload"], "cannot be combined with --ray")
    if given("record"):
        raise WrongUsage("--record cannot be combined with --ray: each node has its own files")
    _refuse(["--workers", *PROCESSES], "cannot be combined with --ray: use --hosts for the number of servers")
    _refuse(["--slot"], "cannot be combined with --ray: each host gets its own slot")
    _refuse(["--retire-seconds"], "cannot be combined with --ray: use --drain-seconds")
    if access.ssl_certfile is not None:
        raise WrongUsage("--ssl-certfile cannot be combined with --ray: use a proxy for https")


def _refuse(flags: Iterable[str], why: str) -> None:
    for flag in flags:
        if typed("reloading" if flag == "--reload" else flag.removeprefix("--").replace("-", "_")):
            raise WrongUsage(f"{flag} {why}")
