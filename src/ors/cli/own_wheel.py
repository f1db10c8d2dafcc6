"""A wheel of ors-kit itself, for packages that are to be installed where no index has it."""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click

from ors.cli.errors import Unreachable, WrongUsage

PACKAGE = "ors-kit"
WHEEL = "ors_kit-*.whl"


def local_origin() -> str | None:
    """The folder or wheel that this package was installed from; None if that was an index."""
    try:
        recorded = distribution(PACKAGE).read_text("direct_url.json")  # PEP 610
    except PackageNotFoundError:
        return None
    url = urlsplit(json.loads(recorded)["url"] if recorded else "")
    return url2pathname(url.path) if url.scheme == "file" else None


@contextmanager
def wheel_of_ors(source: Path | None) -> Iterator[Path | None]:
    """The wheel at a path, or one that is built from the checkout there; None for None.

    Raises:
        WrongUsage: there is neither.
        Unreachable: it cannot be built.
    """
    if source is None or source.match(WHEEL):
        yield source
    elif not _is_checkout(source):
        raise WrongUsage(f"{source} is neither a wheel nor a checkout of {PACKAGE}")
    else:
        with tempfile.TemporaryDirectory() as folder:
            _build(source, folder)
            yield next(Path(folder).glob(WHEEL))


def _is_checkout(folder: Path) -> bool:
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        return bool(tomllib.loads(text)["project"]["name"] == PACKAGE)
    except (OSError, ValueError, KeyError):
        return False


def _build(checkout: Path, folder: str) -> None:
    pip = [sys.executable, "-m", "pip"] if find_spec("pip") else [shutil.which("pip") or ""]
    if not pip[0]:
        raise Unreachable("The wheel is built by pip, which is not installed: python -m ensurepip")
    click.echo(f"Building a wheel of {PACKAGE} from {checkout} ...", err=True)
    command = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(checkout.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unreachable(f"pip cannot build a wheel of {checkout}:\n{done.stderr.strip()}")
