"""`ors list`: the environments of a server or TARGET."""

import click

from ors.cli.options.shared import WHERE, Command, api_key, as_json
from ors.cli.output.printing import print_json
from ors.cli.output.summary import offered, print_offered
from ors.cli.targets.connect import connected


@click.command("list", cls=Command, examples=["ors list adder", "ors list http://127.0.0.1:8080 --json"])
@WHERE
@api_key
@as_json
def list_command(where: str, api_key: str | None, as_json: bool) -> None:
    """List environments with their tasks and tools."""
    with connected(where, api_key) as client:
        found = offered(client)
    if as_json:
        print_json([one.as_json() for one in found])
    else:
        print_offered(found)
