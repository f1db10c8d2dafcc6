"""`ors route` and `ors hosts`: several servers behind one address, and those that run in a Ray cluster."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import click

from ors import Limits
from ors.cli.errors import Unreachable, WrongUsage
from ors.cli.options.serving import BOUNDS, Address, Listening, check_exposure
from ors.cli.options.shared import Command, api_key, as_json, options
from ors.cli.output.printing import print_json
from ors.cli.targets.connect import ray_cluster
from ors.cli.targets.resolve import as_url
from ors.cluster import RouterServer


@click.command(
    cls=Command,
    examples=["ors route --to http://10.0.0.1:8080 --to http://10.0.0.2:8080"],
)
@click.option(
    "--to",
    "servers",
    multiple=True,
    metavar="URL",
    help="Server to route to, started with `ors serve --slot`. Each needs its own slot. Repeatable.",
)
@click.option(
    "--grace-seconds",
    type=click.FloatRange(0),
    default=10.0,
    help="How long open streams may continue at shutdown; clients then reconnect elsewhere.",
)
@options("Options", "address", Address)
@options("Access", "listening", Listening)
@api_key
def route(
    servers: Sequence[str],
    grace_seconds: float,
    address: Address,
    listening: Listening,
    api_key: str | None,
) -> None:
    """Put several servers behind one address.

    The router keeps no state: the session id names the server. Any number of routers may run at the same
    time, and a router that crashes loses no session.
    """
    urls = _urls(servers)
    listening.check_certificate()
    check_exposure(address.host, bool(api_key or listening.insecure), "Pass the servers' key as --api-key")
    runner = RouterServer(
        urls,
        address.host,
        address.port,
        Limits(grace_seconds=grace_seconds),
        api_key or "",
        lambda url: click.echo(f"Routing on {url} (stop with Ctrl-C)"),
        cors_origins=listening.cors_origin,
        **listening.certificate,
    )
    address.run(runner)


def _urls(words: Sequence[str]) -> list[str]:
    if not words:
        raise WrongUsage("Give at least one server: ors route --to URL --to URL")
    urls = [_url(word) for word in words]
    if twice := [word for n, word in enumerate(words) if urls[n] in urls[:n]]:
        raise WrongUsage(f"--to {twice[0]}: this URL is given twice")
    return urls


def _url(word: str) -> str:
    url = as_url(word)
    with suppress(ValueError):  # a port over 65535, or an invalid host name
        parts = urlsplit(url or "")
        if url is not None and parts.port != 0 and (parts.hostname or "").encode("idna"):
            return url
    what = "a URL with a host and a port up to 65535, such as http://10.0.0.1:8080"
    raise WrongUsage(f"--to: {word!r} is not {what}")


@click.command(cls=Command, examples=["ors hosts", "ors hosts --scale 4:16", "ors hosts --drain 1d2c3b"])
@click.option("--ray", "address", metavar="ADDRESS", default="auto", help="Address of the Ray cluster.")
@click.option("--ray-namespace", default="ors", help="Name of the deployment.")
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
    with ray_cluster(address) as ray:
        from ors.cluster.ray import directory

        try:
            known = directory(ray_namespace)
        except ValueError:
            nothing = f"Nothing is served as {ray_namespace!r} in the Ray cluster at {address}"
            raise Unreachable(nothing) from None
        if scale is not None:
            ray.get(known.scale.remote(*scale))
        for word in drain:
            ray.get(known.drain.remote(_node(ray, word)))
        for word in undrain:
            ray.get(known.undrain.remote(_node(ray, word)))
        rows = ray.get(known.hosts.remote())
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    for row in rows:
        going = ", stops after its last session" if row.retiring else ""
        click.echo(f"{row.slot}  {row.url}  {row.sessions} sessions  on {row.node[:12]}{going}")


def _node(ray: Any, word: str) -> str:
    found = [node["NodeID"] for node in ray.nodes() if node["NodeID"].startswith(word)]
    if len(found) != 1:
        raise Unreachable(f"{len(found)} nodes have an id that begins with {word!r}")
    return str(found[0])
