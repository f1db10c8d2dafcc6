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


def section(page: str, heading: str) -> str:
    """The text between a heading and the next one of its level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, f"no section {heading!r}"
    return found[1]


def test_the_design_leads_to_its_other_pages() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", DESIGN))
    assert set(PAGES) - {"design.md"} - linked == set()


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


LEAST_PATHS = {"docs/design-rules.md": 5}
"""Of pages that name few paths."""


@pytest.mark.parametrize("page", [*(f"docs/{name}" for name in PAGES), "CONTRIBUTING.md"])
def test_paths_that_are_named_exist(page: str) -> None:
    named = re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py|\.toml|\.md|/))`", (ROOT / page).read_text())
    gone = {path for path in named if not (SOURCE / path).exists() and not (ROOT / path).exists()}
    assert len(named) > LEAST_PATHS.get(page, 10)
    assert gone == set()
