"""`ors init`: creates a package with a new environment."""

import json
import keyword
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click

from ors import __version__
from ors.cli.errors import WrongUsage
from ors.cli.options.shared import Command, as_json
from ors.cli.output.printing import print_json

TEMPLATES = ("basic", "game", "sandbox")
TAKEN_CLASSES = frozenset(
    {
        *("Bash", "Blocks", "Environment", "Field", "Files", "Path", "SandboxEnvironment", "SandboxLimit"),
        *("SandboxSpec", "Submit", "Task", "TextBlock", "ToolError", "ToolOutput"),
    }
)
"""Names that the templates already use."""
WHEELS = "wheels"
"""Where a new package has wheels that no index has."""
NAMED = '    @classmethod\n    def name(cls) -> str:\n        """The wire name."""\n        return "%s"\n\n'
TAKEN_MODULES = frozenset({"ors", "test", "tests"})


@dataclass(frozen=True)
class Names:
    name: str
    package: str
    cls: str

    def filled(self, text: str) -> str:
        values = {"name": self.name, "package": self.package, "Class": self.cls, "version": __version__}
        # A server has a path /task, so that no environment can have this name.
        wire = values["wire"] = self.cls.lower() if self.name == "task" else self.name
        values["named"] = NAMED % wire if self.cls.lower() != wire else ""
        return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)


@click.command(cls=Command, examples=["ors init adder", "ors init word-game --template game"])
@click.argument("name", type=click.Path(path_type=Path))
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="basic",
    show_default=True,
    help="basic: one question and answer. game: many turns. sandbox: files and programs.",
)
@as_json
def init(name: Path, template: str, as_json: bool) -> None:
    """Create a package with a new environment, its tests, a Dockerfile, a workflow for CI and a README.

    The folder NAME must be new or empty. The last part of NAME becomes the name of the package.
    """
    names = _names(name.name)
    if name.exists() and (not name.is_dir() or any(name.iterdir())):
        raise WrongUsage(f"{name} already exists; nothing was changed")
    written = _write(name, names, template)
    _write_card(name)
    if as_json:
        print_json({"folder": str(name), "class": names.cls, "files": written})
        return
    for path in written:
        click.echo(f"  {name / path}")
    click.echo(f"\nTry it:    ors play {name}\nServe it:  ors serve {name} --reload")
    click.echo(f"Test it:   cd {name} && pip install --find-links {WHEELS} -e '.[dev]' && pytest")
    if origin := local_origin():
        click.echo(
            f"Your ors-kit is from {origin}. To install the package elsewhere too, put a wheel of it there:"
        )
        click.echo(f"           pip wheel --no-deps --wheel-dir {name / WHEELS} {origin}")


def _names(given: str) -> Names:
    name = given.lower().replace("_", "-")
    package = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise WrongUsage(
            f"{given!r} is not a valid package name: use letters, digits and dashes, such as my-env"
        )
    if keyword.iskeyword(package) or package in sys.stdlib_module_names | TAKEN_MODULES:
        raise WrongUsage(f"{given!r} would hide Python's own {package!r}; choose another name")
    cls = "".join(part.capitalize() for part in name.split("-"))
    return Names(name, package, f"{cls}Environment" if cls in TAKEN_CLASSES else cls)


def _write(folder: Path, names: Names, template: str) -> list[str]:
    templates = files("ors.cli") / "templates"
    found = {**_files(templates / "common"), **_files(templates / template)}
    written = {names.filled(path).removesuffix(".tmpl"): names.filled(text) for path, text in found.items()}
    for path, text in sorted(written.items()):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return sorted(written)


def _write_card(folder: Path) -> None:
    # In another process, since the package may have the name of a module that is loaded here.
    command = [sys.executable, "-m", "ors", "card", str(folder), "--readme", str(folder / "README.md")]
    subprocess.run(command, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False)


def _files(folder: Traversable, at: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _files(entry, f"{at}{entry.name}/")
        else:
            found[f"{at}{entry.name}"] = entry.read_text(encoding="utf-8")
    return found


PACKAGE = "ors-kit"


def local_origin() -> str | None:
    """The folder or wheel that this package was installed from; None if that was an index."""
    try:
        recorded = distribution(PACKAGE).read_text("direct_url.json")  # PEP 610
    except PackageNotFoundError:
        return None
    url = urlsplit(json.loads(recorded)["url"] if recorded else "")
    return url2pathname(url.path) if url.scheme == "file" else None
