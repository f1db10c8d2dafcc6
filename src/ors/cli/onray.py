"""`ors serve --ray`: servers as actors of a Ray cluster, until Ctrl-C."""

import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ors import Environment
from ors.cli.faults import Wrong

__all__ = ["serve_on_ray"]

MISSING = "--ray needs Ray, which is an extra: pip install 'ors-kit[ray]'"


def serve_on_ray(
    address: str, hosts: int, classes: Sequence[type[Environment]], host: str, options: Mapping[str, Any]
) -> None:
    """Runs so many hosts in the cluster at that address, until a signal comes."""
    try:
        import ray

        from ors.cluster.ray import deploy
    except ImportError:
        raise Wrong(MISSING) from None
    for module in {cls.__module__ for cls in classes}:
        # A TARGET may be a file that the hosts do not have: it travels with its classes.
        ray.cloudpickle.register_pickle_by_value(sys.modules[module])
    ray.init(address=address, logging_level="WARNING", log_to_driver=False)
    try:
        deployment = deploy(classes, hosts=hosts, host=host, **options)
        try:
            for url in deployment.urls():
                click.echo(f"Serving on {url} (stop with Ctrl-C)")
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            deployment.stop()
    finally:
        ray.shutdown()
