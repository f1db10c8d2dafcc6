import ast
from pathlib import Path

from tests.requirements import REQUIREMENTS


def _proven() -> set[str]:
    proven: set[str] = set()
    for path in Path(__file__).parent.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "proves":
                proven |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}  # type: ignore[misc]
    return proven


def test_every_requirement_is_proven_by_a_test() -> None:
    assert sorted(REQUIREMENTS.keys() - _proven()) == []


def test_every_proof_names_a_requirement() -> None:
    assert sorted(_proven() - REQUIREMENTS.keys()) == []
