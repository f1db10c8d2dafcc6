"""`ors sandboxes`: sandboxes over HTTP, for programs that use openreward."""

from contextlib import closing
from pathlib import Path

import click

from ors import Limits
from ors.cli.options.listening import Access, check_exposure, listener
from ors.cli.options.shared import COUNT, Command, HostingFlags, address_flags, log_flags, options
from ors.cli.output import logging as logs

ADVICE = "Programs that use openreward find it by OPENREWARD_SESSION_URL={url}"
IDLE_SECONDS = 120.0
"""A sandbox ends this long after the last request of its client, which pings every ten seconds."""
PING_SECONDS = 5.0
"""Clients give a stream up that is silent for 30 seconds."""


@click.command(cls=Command, examples=["ors sandboxes --port 8091 --host-root"])
@address_flags
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder that buckets are mounted from, read-only.",
)
@click.option(
    "--sandboxes",
    "most",
    type=COUNT,
    default=64,
    help="Maximum concurrent sandboxes; beyond it, 429.",
)
@log_flags
@options("Sandboxes", "flags", HostingFlags)
@options("Access", "access", Access)
def sandboxes(
    host: str,
    port: int,
    data: Path | None,
    most: int,
    log_level: str,
    log_json: bool,
    flags: HostingFlags,
    access: Access,
) -> None:
    """Serve sandboxes to programs that use openreward.

    Set OPENREWARD_SESSION_URL to its address, and OPENREWARD_API_KEY to one of its keys if it has any. What a
    client asks for and this server does not have is refused by name. A sandbox ends with its client: 120
    seconds after its last request or ping.
    """
    from ors.openreward.serving import sandbox_server

    access.check_certificate()
    keys = access.all_keys([])
    check_exposure(host, bool(keys or access.insecure), "Set a key in ORS_API_KEYS")
    server = sandbox_server(
        flags.hosting(data),
        limits=Limits(sessions=most, idle_seconds=IDLE_SECONDS, ping_seconds=PING_SECONDS),
        api_keys=keys,
        cors_origins=access.cors_origin,
        inspector=access.inspector,
    )
    runner = server.runner(
        host,
        port,
        insecure=access.insecure,
        on_start=lambda url: click.echo(f"Serving on {url} (stop with Ctrl-C)\n\n{ADVICE.format(url=url)}"),
        **access.certificate,
    )
    with closing(logs.configure(log_level, log_json)):
        runner.run(sockets=[listener(host, port)])
