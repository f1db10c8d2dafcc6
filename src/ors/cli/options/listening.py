"""Options of commands that listen on a socket, and that socket."""

import errno
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from ors.cli.errors import Unreachable, WrongUsage
from ors.cli.options.shared import flag
from ors.server import ApiKey, is_loopback
from ors.server.process.runner import bound

EXPOSED = (
    "On {host}, anyone who can reach this machine could list all tasks with their answers and run the tools. "
    "{remedy}, or pass --insecure if this is intended"
)


class _Key(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A key. A variable holds several, separated by commas."""

    name = "[NAME=]SECRET"
    envvar_list_splitter = ","


EXISTING = click.Path(exists=True, dir_okay=False)


def check_exposure(host: str, secured: bool, remedy: str) -> None:
    """Checks that an address open to the network is `secured` by a key or by --insecure."""
    if not secured and not is_loopback(host):
        raise WrongUsage(EXPOSED.format(host=host or "the addresses of the nodes", remedy=remedy))


@dataclass(frozen=True)
class Listening:
    insecure: bool = flag("Allow any address without an API key.", is_flag=True)
    cors_origin: Sequence[str] = flag(
        "Origin whose web pages may call the server. Repeatable.", multiple=True, metavar="ORIGIN"
    )
    ssl_certfile: str | None = flag("TLS certificate; enables https.", type=EXISTING)
    ssl_keyfile: str | None = flag("Private key of the certificate.", type=EXISTING)

    def check_certificate(self) -> None:
        """Checks that the certificate, if there is one, can be used."""
        if self.ssl_certfile is None:
            if self.ssl_keyfile is not None:
                raise WrongUsage("--ssl-keyfile needs --ssl-certfile")
            return
        try:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            # Without a password, OpenSSL would ask for one at the terminal.
            tls.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, password="")
        except (OSError, ValueError) as error:
            raise WrongUsage(f"The certificate or its key cannot be used: {error}") from None

    @property
    def certificate(self) -> dict[str, str | None]:
        return {"ssl_certfile": self.ssl_certfile, "ssl_keyfile": self.ssl_keyfile}


@dataclass(frozen=True)
class Access(Listening):
    api_key: Sequence[str] = flag(
        "API key that clients must send. Repeatable. Safer: ORS_API_KEYS, with commas.",
        type=_Key(),
        multiple=True,
        envvar="ORS_API_KEYS",
    )
    api_key_file: Path | None = flag(
        "File of keys, one per line: SECRET or NAME=SECRET, then sessions=N or private.",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    )
    inspector: bool | None = flag(
        "Serve the inspector page at /-/.  [default: on loopback]",
        names="--inspector/--no-inspector",
        default=None,
    )

    def all_keys(self, inherited: Sequence[str]) -> list[ApiKey]:
        """Keys from the command line, or else from the parent process, and from the file."""
        lines = self.api_key_file.read_text(encoding="utf-8").splitlines() if self.api_key_file else []
        texts = [
            *(self.api_key or inherited),
            *(line for line in lines if line.strip() and not line.startswith("#")),
        ]
        try:
            return [ApiKey.parse(text, number) for number, text in enumerate(texts, 1)]
        except ValueError as error:
            raise WrongUsage(str(error)) from None


def listener(host: str, port: int) -> socket.socket:
    with in_words(host, port):
        return bound(host, port)


@contextmanager
def in_words(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = (
            "the port is in use; choose another --port, or 0 for a free one"
            if taken
            else error.strerror or str(error)
        )
        raise Unreachable(f"Cannot listen on {host}:{port}: {why}") from None
