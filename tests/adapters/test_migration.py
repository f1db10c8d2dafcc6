"""Code "before" a migration from a package for trainers, run with that package."""

from pathlib import Path

import pytest

from tests.examples.pages import files
from tests.support.side_venvs import TRAINERS, VERIFIERS, Package, printed_by

CASES: dict[str, tuple[Package, str, str]] = {
    "openenv": (
        TRAINERS,
        "from before import Guess, Hunt; h = Hunt(); h.reset(); print(h.step(Guess(number=7)).reward)",
        "1.0",
    ),
    "verifiers": (
        VERIFIERS,
        "import verifiers.v1 as vf; from before import Sums\n"
        "print([task.data.answer for task in Sums(vf.TasksetConfig(id='sums')).take(3)])",
        "[0, 2, 4]",
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_the_code_before_a_migration_runs_with_its_package(name: str, tmp_path: Path) -> None:
    package, code, printed = CASES[name]
    files(f"docs/migration/{name}.md", tmp_path)
    assert printed_by(package, code, tmp_path).splitlines()[-1] == printed
