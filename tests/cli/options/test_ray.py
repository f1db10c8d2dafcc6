"""`ors serve --ray` and `ors hosts` where there is no Ray, or no cluster."""

from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.commands import run


@pytest.mark.parametrize("words", [["serve", "x.py", "--ray", "--host", "127.0.0.1"], ["hosts"]])
def test_without_ray_the_command_says_how_to_get_it(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("raise ImportError('No module named ray')\n")
    (tmp_path / "x.py").write_text(ENVIRONMENT)
    done = run(*words, cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{SOURCES}"})
    assert done.code == 2
    assert "pip install 'ors-kit[ray]'" in done.err


SOURCES = ROOT / "src"
ENVIRONMENT = """
import ors

class Small(ors.Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{}]

    def get_prompt(self):
        return [ors.TextBlock(text="small")]

    @ors.tool
    def nothing(self) -> ors.ToolOutput:
        "Does nothing."
        return ors.ToolOutput(blocks=[])
"""
