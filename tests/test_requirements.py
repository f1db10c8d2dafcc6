import ast
import re
from pathlib import Path

import pytest

from ors.conformance.requirements import Requirement, manifest
from tests.requirements import proves

DOCS = Path(__file__).parents[1] / "docs"
SPECIFICATION = {"http-api", "overview", "sse", "tools"}


def _proven() -> set[str]:
    proven: set[str] = set()
    for path in Path(__file__).parent.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "proves":
                proven |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}  # type: ignore[misc]
    return proven


def test_every_requirement_that_no_check_can_see_is_proven_by_a_test() -> None:
    own = {id for id, requirement in manifest().items() if requirement.level == "own"}
    assert sorted(own - _proven()) == []


def test_a_proof_of_something_that_the_manifest_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no such requirement: http\.no-such-id"):
        proves("http.head-health", "http.no-such-id")


def _explained(requirement: Requirement) -> bool:
    """Whether the page in docs/ that a decision of this project refers to has that section."""
    headings = re.findall(r"^#+ (.+)$", (DOCS / f"{requirement.page}.md").read_text(), re.MULTILINE)
    return requirement.level != "must" and requirement.section in headings


def test_every_requirement_is_a_sentence_of_the_specification_or_is_explained_in_the_docs() -> None:
    known = manifest().values()
    assert [each.id for each in known if not each.text.endswith(".") or not each.section] == []
    ours = [each for each in known if each.page not in SPECIFICATION]
    assert [each.id for each in ours if not _explained(each)] == []
    assert {each.level for each in known if each not in ours} == {"must", "should"}
