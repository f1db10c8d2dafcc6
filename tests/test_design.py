"""The pages of the design and the table in CONTRIBUTING.md, compared with the tree that they describe."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ors"
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("design*.md"))}
DESIGN = PAGES["design.md"]
STREAMS = PAGES["design-streams.md"]
RULES = PAGES["design-rules.md"]
DECISIONS = PAGES["design-decisions.md"]
GLOSSARY = (
    *("server", "router", "peer", "link", "session", "episode"),
    *("call", "result", "environment", "host", "worker", "drain"),
)


def section(page: str, heading: str) -> str:
    """The text between a heading and the next one of its level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, f"no section {heading!r}"
    return found[1]


def drawn(page: str) -> dict[str, str]:
    """The files and folders of the drawing, relative to src/ors, and what is said of each."""
    found: dict[str, str] = {}
    for block in re.findall(r"^```\n(.*?)^```$", section(page, "The house"), re.DOTALL | re.MULTILINE):
        folders: list[str] = []
        for line in block.splitlines():
            name, _, text = line.strip().partition(" ")
            depth = (len(line) - len(line.lstrip())) // 2
            path = "".join(folders[:depth]) + name
            folders[depth:] = [name]
            assert path not in found, f"{path} is drawn twice"
            found[path] = text.strip()
    return found


def modules() -> set[str]:
    """The modules of src/ors; a package is its folder."""
    paths = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    return {path.removesuffix("__init__.py") for path in paths if path != "__init__.py"}


def test_the_design_leads_to_its_other_pages() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", DESIGN))
    assert set(PAGES) - {"design.md"} - linked == set()


def test_the_drawing_names_every_module_and_none_that_is_gone() -> None:
    found = set(drawn(DESIGN))
    assert modules() - found == set(), "not drawn in docs/design.md"
    assert found - modules() == set(), "drawn in docs/design.md, and gone"


def test_the_drawing_says_something_of_every_module() -> None:
    assert [path for path, text in drawn(DESIGN).items() if not text] == []


def test_the_glossary_has_each_of_the_dozen_words_once() -> None:
    words = re.findall(r"^\| \*\*([a-z ]+)\*\* \|", section(RULES, "Glossary"), re.MULTILINE)
    assert [word for word in GLOSSARY if words.count(word) != 1] == []
    assert len(words) == len(set(words))


@cache
def defined(path: str) -> set[str]:
    """The functions, classes, methods and names that a module defines."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((SOURCE / path).read_text())):
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for name in _names(node)} | {node.name}
        elif isinstance(node, ast.Module):
            found |= _names(node)
    return found


def _names(node: ast.Module | ast.ClassDef) -> set[str]:
    targets = [
        part for each in ast.walk(node) if isinstance(each, ast.AnnAssign | ast.Assign) for part in _of(each)
    ]
    inner = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {*targets, *inner}


def _of(assignment: ast.AnnAssign | ast.Assign) -> list[str]:
    targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
    named = [each.id for each in targets if isinstance(each, ast.Name)]
    return named + [each.attr for each in targets if isinstance(each, ast.Attribute)]


def walked(page: str) -> list[tuple[str, str]]:
    """The modules that the walks of a page go through, each with its functions."""
    return re.findall(r"^\| `([\w/.]+\.py)` \| (`.+?`) \|", page, re.MULTILINE)


def test_every_walk_is_found() -> None:
    walks = [
        section(DESIGN, "One tool call"),
        section(STREAMS, "A forwarded call"),
        section(STREAMS, "A feed"),
    ]
    assert [walk for walk in walks if len(walked(walk)) < 5] == []


@pytest.mark.parametrize(("path", "names"), [row for page in PAGES.values() for row in walked(page)])
def test_a_walk_goes_through_functions_that_are_there(path: str, names: str) -> None:
    assert [name for name in re.findall(r"`([\w.]+)`", names) if name not in defined(path)] == []


BY_HAND = re.findall(
    r"^\| ([^|]*`[\w/.]+`[^|]*) \| (\d+) \|", section(DECISIONS, "Written by hand, and why"), re.MULTILINE
)


@pytest.mark.parametrize(("row", "lines"), BY_HAND)
def test_what_is_written_by_hand_is_about_as_long_as_the_design_says(row: str, lines: str) -> None:
    named = [SOURCE / path for path in re.findall(r"`([\w/.]+)`", row)]
    files = [file for path in named for file in (path.glob("*.py") if path.is_dir() else [path])]
    counted = sum(len(file.read_text().splitlines()) for file in files)
    assert 0.8 < counted / int(lines) < 1.25, counted


LEAST_PATHS = {"docs/design-rules.md": 5}
"""Of pages that name few paths."""


@pytest.mark.parametrize("page", [*(f"docs/{name}" for name in PAGES), "CONTRIBUTING.md"])
def test_paths_that_are_named_exist(page: str) -> None:
    named = re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py|\.toml|\.md|/))`", (ROOT / page).read_text())
    gone = {path for path in named if not (SOURCE / path).exists() and not (ROOT / path).exists()}
    assert len(named) > LEAST_PATHS.get(page, 10)
    assert gone == set()
