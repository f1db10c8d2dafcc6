"""`ors init` and `ors card`: a package with a new environment, and the card in its README."""

import keyword
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ors import __version__
from ors.cli.errors import Unreachable, WrongUsage, clean, shown_path
from ors.cli.options.shared import WHERE, Command, api_key, as_json, environment
from ors.cli.output.printing import print_json
from ors.cli.targets.connect import chosen, connected

TEMPLATES_FOLDER = Path(__file__).parents[1] / "templates"
TEMPLATES = ("basic", "game", "sandbox")
TAKEN_CLASSES = {
    *("Bash", "Blocks", "Environment", "Field", "Files", "Path", "SandboxEnvironment", "SandboxLimit"),
    *("SandboxSpec", "Submit", "Task", "TextBlock", "ToolError", "ToolOutput"),
}
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
    help="basic: one question and answer. game: many turns. sandbox: files and programs.",
)
@as_json
def init(name: Path, template: str, as_json: bool) -> None:
    """Create a package with a new environment, its tests, a Dockerfile, a CI workflow and a README.

    The folder NAME must be new or empty. The last part of NAME becomes the name of the package.
    """
    names = _names(name.name)
    if name.exists() and (not name.is_dir() or any(name.iterdir())):
        raise WrongUsage(f"{name} already exists; nothing was changed")
    written = _write(name, names, template)
    # In another process, since the package may have the name of a module that is loaded here.
    command = [sys.executable, "-m", "ors", "card", str(name), "--readme", str(name / "README.md")]
    subprocess.run(command, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False)
    if as_json:
        print_json({"folder": str(name), "class": names.cls, "files": written})
        return
    for path in written:
        click.echo(f"  {name / path}")
    click.echo(f"\nTry it:    ors play {name}\nServe it:  ors serve {name} --reload")
    click.echo(f"Test it:   cd {name} && pip install --find-links {WHEELS} -e '.[dev]' && pytest")


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
    found = {**_files(TEMPLATES_FOLDER / "common"), **_files(TEMPLATES_FOLDER / template)}
    written = {names.filled(path).removesuffix(".tmpl"): names.filled(text) for path, text in found.items()}
    for path, text in written.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return sorted(written)


def _files(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


BEGIN, END = "<!-- ors card: {} -->", "<!-- /ors card -->"
TASKS = "### Tasks"
PACKAGE = "Package"
UNKNOWN = "?"
"""What the card says of a split whose tasks cannot be counted."""


@click.command(
    cls=Command,
    examples=["ors card adder --readme adder/README.md", "ors card adder --readme adder/README.md --check"],
)
@WHERE
@environment
@click.option(
    "--readme",
    type=click.Path(dir_okay=False, path_type=Path),
    default="README.md",
    help="The file with the card.",
)
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if the card is out of date.")
@api_key
def card(where: str, env: str | None, readme: Path, check: bool, api_key: str | None) -> None:
    """Write the card of an environment into its README.

    The card describes the environment: its docstring, tasks, tools, rewards, parameters and
    needs. It stands between two comments; the rest of the file is not changed.
    """
    with connected(where, api_key) as client:
        source = chosen(client, env)
        told = source.description()
    if told is None:
        raise Unreachable(f"The server does not describe {source.name}: it is not an ors server")
    text = readme.read_text(encoding="utf-8") if readme.exists() else f"# {source.name}\n"
    before, old, after = _parts(text, source.name, readme)
    if not check:
        gap = "" if old or before.endswith("\n\n") else "\n"
        readme.write_text("".join([before, gap, _card(told), after]), encoding="utf-8")
        return
    lies = _lies(old, told) if old else [f"there is no card for {source.name}; `ors card` writes one"]
    for lie in lies:
        click.echo(clean(f"{shown_path(readme)}: {lie}"))
    if lies:
        raise click.exceptions.Exit(1)


def _parts(text: str, name: str, readme: Path) -> tuple[str, str, str]:
    """What is before the card, the card, and what is after it."""
    begin = text.find(BEGIN.format(name))
    end = text.find(END, begin)
    if begin < 0:
        return text, "", "\n"
    if end < 0:
        raise WrongUsage(f"{shown_path(readme)}: the card for {name} is not closed: {END} is missing")
    return text[:begin], text[begin : end + len(END)], text[end + len(END) :]


def _sections(told: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """By title: names, each with what is said of it."""
    bounds, needs, package = told["reward_range"], told["needs"], {"licence": told["license"]}
    package["authors"] = ", ".join(told["authors"])
    counts = {each["name"]: each.get("num_tasks") for each in told["splits"]}
    tools = [*told["tools"], *filter(None, [told["terminal_tool"]])]
    kinds = ((tools, ""), (told["task_tools"], " (some tasks)"))
    total = {"total": f"{bounds[0]:g} to {bounds[1]:g}"} if bounds else {}
    parameters = told.get("parameters", {}).get("schema", {}).get("properties", {})
    box = f"{(needs['memory'] or 0) / 2**20:g} MB, {'with' if needs['network'] else 'no'} network"
    found: dict[str, dict[str, str]] = {
        "Tasks": {name: UNKNOWN if count is None else str(count) for name, count in counts.items()},
        "Tools": {each["name"]: (each["description"] or "") + kind for all, kind in kinds for each in all},
        "Rewards": {**total, **told["reward_components"]},
        "Parameters": {name: _parameter(schema) for name, schema in parameters.items()},
        "Needs": {
            "secrets": ", ".join(told["required_secrets"]) or "none",
            "sandbox": box if needs["sandbox"] else "none",
        },
        PACKAGE: {name: text for name, text in package.items() if text},
    }
    return {title: rows for title, rows in found.items() if rows}


def _parameter(schema: Mapping[str, Any]) -> str:
    default = f"{schema['default']!r} by default" if "default" in schema else "required"
    return ". ".join(filter(None, [default, schema.get("description")]))


def _card(told: Mapping[str, Any]) -> str:
    prose = [re.sub(r"^(?=[#|<])", r"\\", line) for line in told["description"].splitlines()]
    lines = [BEGIN.format(told["name"]), *prose]
    for title, rows in _sections(told).items():
        table = (f"| {_cell(name)} | {_cell(text)} |" for name, text in rows.items())
        lines += ["", f"### {title}", "", "| | |", "|---|---|", *table]
    return "\n".join([*lines, "", END])


def _cell(text: str) -> str:
    return " ".join(clean(text).split()).replace("|", r"\|")


def _lies(card: str, told: Mapping[str, Any]) -> list[str]:
    """What a card says that is not true, and what it does not say, one line each."""
    if told["version"] is None:  # it is not installed here, so nobody knows of its package
        card = card.partition(f"### {PACKAGE}")[0]
    said, true = _lines(card), _lines(_card(told))
    for title, line in [*true]:
        if title == TASKS and line.endswith(f"| {UNKNOWN} |"):  # it may say any number
            del true[title, line]
            row = line.removesuffix(f"{UNKNOWN} |")
            true += Counter(each for each in said if each[0] == TASKS and each[1].startswith(row))
    return [
        *(f"not true: {line}" for line in _told(said - true, true)),
        *(f"missing: {line}" for line in _told(true - said, said)),
    ]


def _told(lines: Counter[tuple[str, str]], others: Counter[tuple[str, str]]) -> list[str]:
    """Lines without those of a section that the others lack, whose title says it all."""
    titles = {title for title, _ in others}
    return [line for title, line in lines.elements() if title in titles or title == line]


def _lines(card: str) -> Counter[tuple[str, str]]:
    """The lines of a card that say something, with the titles above them; first its prose, in one line.

    Spaces are single and paragraphs joined, since formatters align tables and wrap text.
    """
    title, prose, rows = "", "", Counter[tuple[str, str]]()
    for line in (" ".join(line.split()) for line in card.splitlines() if not line.startswith("<!--")):
        title = line if line.startswith("### ") else title
        if not title:
            prose = f"{prose} {line}".strip()
        elif line.strip("|-: "):
            rows[title, line] += 1
    return Counter({("", prose): 1}) + rows
