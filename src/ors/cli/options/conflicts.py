"""Which flags of `ors serve` go together."""

from collections.abc import Iterable

from ors.cli.errors import Wrong
from ors.cli.options.access import Access
from ors.cli.options.ray import FLAGS as RAY_FLAGS
from ors.cli.options.ray import OnRay
from ors.cli.options.shared import given, typed
from ors.cli.options.workers import Workers

__all__ = ["check_together"]

PROCESSES = ("--preload", "--max-worker-memory", "--max-worker-sessions")


def check_together(on_ray: OnRay, workers: Workers, access: Access, reloading: bool) -> None:
    """Makes sure that no flag would be without effect.

    What a variable or a file sets for the one way of serving may stand while another is used. Not so a slot
    and a certificate: servers would have other ids than their router thinks, or be open to listeners.

    Raises:
        Wrong: one would be.
    """
    if on_ray.ray is None:
        only = [name for name, _ in RAY_FLAGS if name != "--ray"]
        _refuse(only, "is for servers in a Ray cluster: add --ray, or leave it out")
    else:
        _check_ray(on_ray, access)
    if reloading:
        _refuse([*PROCESSES, "--drain-seconds"], "does not go with --reload, which is for one process")
        _refuse(["--retire-seconds"], "does not go with --reload, which does not wait for sessions")
        if workers.workers > 1:
            raise Wrong("--workers does not go with --reload, which is for one process")
    elif workers.supervised and given("slot") and on_ray.ray is None:
        raise Wrong(f"--slot does not go with {workers.supervised}: workers have slots of their own")


def _check_ray(on_ray: OnRay, access: Access) -> None:
    on_ray.numbers()
    _refuse(["--reload"], "does not go with --ray")
    _refuse(["--workers", *PROCESSES], "does not go with --ray: --hosts is the number of servers there")
    _refuse(["--slot"], "does not go with --ray: hosts have slots of their own")
    _refuse(["--retire-seconds"], "does not go with --ray: hosts that go have --drain-seconds")
    if access.ssl_certfile is not None:
        raise Wrong("--ssl-certfile does not go with --ray: let a proxy before the servers there do https")


def _refuse(flags: Iterable[str], why: str) -> None:
    for flag in flags:
        if typed("reloading" if flag == "--reload" else flag.removeprefix("--").replace("-", "_")):
            raise Wrong(f"{flag} {why}")
