"""Links that leave docs/: to files of the repository, which become pages, and to other servers."""

import ast
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "AGENTS.md": "agents-md.md",
    "examples/training/README.md": "examples/training.md",
}
"""Documents of the repository, and where the site has them."""

_LINK = re.compile(r"(\]\()((?!\w+:|#)[^)\s#]+)((?:#[^)\s]*)?\))")


@cache
def addresses() -> dict[str, str]:
    """Where the site has each file that is outside docs/, by its path in the repository."""
    folder = ROOT / "examples"
    sources = [*sorted(folder.glob("[!_]*.py")), *sorted(folder.glob("training/[!_]*.py"))]
    examples = {path.relative_to(ROOT).as_posix(): f"examples/{path.stem}.md" for path in sources}
    pictures = {path.relative_to(ROOT).as_posix(): f"examples/{path.name}" for path in folder.rglob("*.svg")}
    documents = {path: place for path, place in DOCUMENTS.items() if (ROOT / path).exists()}
    return {"examples": "examples/index.md"} | documents | examples | pictures


def pages() -> dict[str, str]:
    """The text of these pages, by their address in the site, and a list of the examples."""
    found = {path: place for path, place in addresses().items() if path.endswith((".md", ".py"))}
    texts = {place: _text(path) for path, place in found.items()}
    lines = [
        f"- [{Path(path).stem}]({Path(place).name}): {_first_line(path)}"
        for path, place in found.items()
        if path.endswith(".py")
    ]
    intro = "Environments to read and to copy from, one file each. `make run` serves them.\n\n"
    return texts | {"examples/index.md": f"# Examples\n\n{intro}" + "\n".join(lines) + "\n"}


def pictures() -> dict[str, Path]:
    """The pictures that these pages show, by their address in the site."""
    return {place: ROOT / path for path, place in addresses().items() if path.endswith(".svg")}


def relinked(markdown: str, place: str) -> str:
    """Makes links to files of the repository lead to their pages in the site."""
    table = addresses()
    home = {address: path for path, address in table.items()}.get(place, f"docs/{place}")

    def led(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), match[2]))
        address = table.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if address is None:
            return match[0]
        return match[1] + posixpath.relpath(address, posixpath.dirname(place) or ".") + match[3]

    return _LINK.sub(led, markdown)


def external_links(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Links to other servers, outside of code, each with the pages that have it."""
    found: dict[str, list[str]] = {}
    for place, text in sorted(pages.items()):
        prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
        for address in set(re.findall(r"\]\((https?:[^)\s]*)\)", prose)):
            found.setdefault(address, []).append(place)
    return dict(sorted(found.items()))


def _text(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {Path(path).stem}\n\n{_first_line(path)} The file is `{path}`.\n\n```python\n{text}```\n"


def _first_line(path: str) -> str:
    return (ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or "").split("\n")[0]
