"""`ors hosts`: lists, scales and drains the hosts in a Ray cluster."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from ors.cli.errors import Unreachable
from ors.cli.options.ray import BOUNDS, connected
from ors.cli.options.shared import Command, as_json


@click.command(cls=Command, examples=["ors hosts", "ors hosts --scale 4:16", "ors hosts --drain 1d2c3b"])
@click.option(
    "--ray",
    "address",
    metavar="ADDRESS",
    default="auto",
    show_default=True,
    help="Address of the Ray cluster.",
)
@click.option("--ray-namespace", default="ors", show_default=True, help="Name of the deployment.")
@click.option("--scale", type=BOUNDS, help="New number of hosts, or bounds for autoscaling.")
@click.option("--drain", multiple=True, metavar="NODE", help="Retire the hosts of this node. Repeatable.")
@click.option("--undrain", multiple=True, metavar="NODE", help="Allow hosts on this node again. Repeatable.")
@as_json
def hosts(
    address: str,
    ray_namespace: str,
    scale: tuple[int, int] | None,
    drain: Sequence[str],
    undrain: Sequence[str],
    as_json: bool,
) -> None:
    """List the hosts that `ors serve --ray` runs, change their number, or drain a node.

    NODE is a Ray node id, or its first characters. A host that is removed takes no new sessions and stops
    after its last one.
    """
    ray = connected(address)
    try:
        from ors.cluster.ray import directory

        try:
            known = directory(ray_namespace)
        except ValueError:
            raise Unreachable(
                f"Nothing is served as {ray_namespace!r} in the Ray cluster at {address}"
            ) from None
        if scale is not None:
            ray.get(known.scale.remote(*scale))
        for word in drain:
            ray.get(known.drain.remote(_node(ray, word)))
        for word in undrain:
            ray.get(known.undrain.remote(_node(ray, word)))
        _print(ray.get(known.hosts.remote()), as_json)
    finally:
        ray.shutdown()


def _node(ray: Any, word: str) -> str:
    found = [node["NodeID"] for node in ray.nodes() if node["NodeID"].startswith(word)]
    if len(found) != 1:
        raise Unreachable(f"{len(found)} nodes have an id that begins with {word!r}")
    return str(found[0])


def _print(rows: Sequence[Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows]))
        return
    for row in rows:
        going = ", stops after its last session" if row.retiring else ""
        click.echo(f"{row.slot}  {row.url}  {row.sessions} sessions  on {row.node[:12]}{going}")
