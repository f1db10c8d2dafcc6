"""Code "before" a migration, run with the package that it is for; and what needs that package beside ours."""

from pathlib import Path

import pytest

from tests.examples.pages import ROOT, files
from tests.support.side_venvs import GYMNASIUM, OPENREWARD, ORS_SDK, Package, printed_by

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

CASES: dict[str, tuple[Package, str, str]] = {
    "ors-sdk": (ORS_SDK, "from server import Capitals; print(len(Capitals.list_tools().tools))", "1"),
    "openreward": (
        OPENREWARD,
        "from before import Rhymes; print(Rhymes.list_tools().terminal_tool.name)",
        "grade",
    ),
    "gymnasium": (
        GYMNASIUM,
        "from before import Walk; w = Walk(); w.reset(seed=1); print(w.step(1)[0])",
        "1",
    ),
}


@pytest.mark.xdist_group("compat")
@pytest.mark.parametrize("name", CASES)
def test_the_code_before_a_migration_runs_with_its_package(name: str, tmp_path: Path) -> None:
    package, code, printed = CASES[name]
    files(f"docs/migration/{name}.md", tmp_path)
    quiet = {"OPENREWARD_DISABLE_UPDATE_CHECK": "1"}
    assert printed_by(package, code, tmp_path, **quiet).splitlines()[-1] == printed


@pytest.mark.xdist_group("compat")
def test_an_environment_of_gymnasium_is_played_through_its_wrapper(tmp_path: Path) -> None:
    files("docs/migration/gymnasium.md", tmp_path)
    code = """
import asyncio
import ors.testing
from ors.client import ToolCallError
from wrapped import Gym

async def main():
    async with ors.testing.session(Gym, split="train", index=0) as session:
        assert "Cross the ice" in (await session.get_prompt())[0].text
        try:
            await session.call_tool("step", {"action": 9})
        except ToolCallError as error:
            print(error)
        for action in (1, 1, 2, 1, 2, 2):
            output = await session.call_tool("step", {"action": action})
        print(output.reward, output.finished)

asyncio.run(main())
"""
    printed = printed_by(GYMNASIUM, code, tmp_path, PYTHONPATH=str(ROOT / "src")).splitlines()
    assert printed == ["There is no action 9: it must be in Discrete(4).", "1.0 True"]
