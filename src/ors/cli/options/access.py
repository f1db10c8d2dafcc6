"""Who may use the server: the flags for keys, certificates and web pages."""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ors.cli.errors import Wrong
from ors.cli.options.shared import Grouped
from ors.server import ApiKey

__all__ = ["Access", "access_flags"]

F = TypeVar("F", bound=Callable[..., Any])


class _Key(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A key; a variable holds several, with commas between them."""

    name = "[NAME=]SECRET"
    envvar_list_splitter = ","


FLAGS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--api-key",
        {
            "type": _Key(),
            "multiple": True,
            "envvar": "ORS_API_KEYS",
            "help": "Clients must send this key, or another one given so. Better: ORS_API_KEYS, with commas.",
        },
    ),
    (
        "--api-key-file",
        {
            "type": click.Path(exists=True, dir_okay=False, path_type=Path),
            "help": "Keys from a file, one a line: SECRET or NAME=SECRET, then sessions=N or private.",
        },
    ),
    ("--insecure", {"is_flag": True, "help": "Listen on other hosts than loopback without any key."}),
    (
        "--inspector/--no-inspector",
        {"default": None, "help": "Offer a page for the browser at /-/.  [default: on loopback]"},
    ),
    (
        "--cors-origin",
        {"multiple": True, "metavar": "ORIGIN", "help": "Web page that may call the server from a browser."},
    ),
    ("--ssl-certfile", {"type": click.Path(exists=True, dir_okay=False), "help": "Certificate, for https."}),
    ("--ssl-keyfile", {"type": click.Path(exists=True, dir_okay=False), "help": "The certificate's key."}),
)


def access_flags(command: F) -> F:
    """Adds the flags."""
    for name, options in reversed(FLAGS):
        command = click.option(name, cls=Grouped, group="Access", **options)(command)
    return command


@dataclass(frozen=True)
class Access:
    """What the flags say."""

    api_key: Sequence[str]
    api_key_file: Path | None
    insecure: bool
    inspector: bool | None
    cors_origin: Sequence[str]
    ssl_certfile: str | None
    ssl_keyfile: str | None

    def check_certificate(self) -> None:
        """Makes sure that https will work.

        Raises:
            Wrong: it will not.
        """
        if self.ssl_certfile is None:
            if self.ssl_keyfile is not None:
                raise Wrong("--ssl-keyfile belongs to a --ssl-certfile, which is missing")
            return
        try:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            # An encrypted key would be asked for at the terminal, by nobody's leave.
            tls.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, password="")
        except (OSError, ValueError) as error:
            raise Wrong(f"The certificate or its key cannot be used: {error}") from None

    def all_keys(self) -> list[ApiKey]:
        """All keys.

        Raises:
            Wrong: one is not a key; the text does not show it.
        """
        lines = self.api_key_file.read_text(encoding="utf-8").splitlines() if self.api_key_file else []
        texts = [*self.api_key, *(line for line in lines if line.strip() and not line.startswith("#"))]
        try:
            return [ApiKey.parse(text, number) for number, text in enumerate(texts, 1)]
        except ValueError as error:
            raise Wrong(str(error)) from None
