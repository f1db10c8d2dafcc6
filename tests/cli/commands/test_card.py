"""`ors card`: the README says what is true of an environment."""

from pathlib import Path

import pytest

from ors import Server
from tests.server.test_description import Box, Shelf
from tests.support.commands import Done, run
from tests.support.live_server import serving

pytestmark = pytest.mark.long
TARGET = f"{Path(__file__).parents[2] / 'server' / 'test_description.py'}:Shelf"
PROSE = "# The shelf\n\nMine.\n\n<!-- ors card: shelf -->\n<!-- /ors card -->\n\nAlso mine: | train | 9 |\n"


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    path.write_text(PROSE)
    assert card(path).code == 0
    return path


def card(readme: Path, *words: str, where: str = TARGET) -> Done:
    return run("card", where, *words, cwd=readme.parent)


def test_a_card_is_written_between_its_comments_and_is_true(readme: Path) -> None:
    before, _, rest = readme.read_text().partition("<!-- ors card: shelf -->")
    written, _, after = rest.partition("<!-- /ors card -->")
    assert f"{before}<!-- ors card: shelf -->\n<!-- /ors card -->{after}" == PROSE
    for line in (
        "And boxes.",
        "| train | 3 |",
        "| extra | ? |",  # it cannot be counted
        "| find | Find a book. |",
        "| climb | Climb up. (some tasks) |",
        "| total | 0 to 2 |",
        "| found | Whether it was found. |",
        "| height | 3 by default |",
        "| secrets | library_card |",
        "| sandbox | none |",
    ):
        assert line in written.splitlines()
    done = card(readme, "--check")
    assert (done.code, done.out, done.err) == (0, "", "")
    text = readme.read_text()
    assert card(readme).code == 0
    assert readme.read_text() == text
    readme.write_text(text.replace("| train | 3 |", "|  train  |  3 |"))  # as formatters do
    assert card(readme, "--check").code == 0


def test_every_lie_is_one_line(readme: Path) -> None:
    lies = {
        "Has books.": "Has many books.",
        "| train | 3 |": "| train | 300 |",
        "| find | Find a book. |": "| find | Find a book. |\n| burn | Burn it. |",
        "| climb | Climb up. (some tasks) |\n": "",
        "### Needs": "### Wants",
        "| total | 0 to 2 |": "| total | 0 to 2 |\n| total | 0 to 1 |\nIt has 5,000 tasks.",
    }
    text = readme.read_text()
    for true, lie in lies.items():
        assert true in text
        text = text.replace(true, lie)
    readme.write_text(text)
    done = card(readme, "--check")
    assert done.code == 1
    assert done.out.splitlines() == [
        f"README.md: {lie}"
        for lie in (
            "not true: Has many books. And boxes.",
            "not true: | train | 300 |",
            "not true: | burn | Burn it. |",
            "not true: | total | 0 to 1 |",
            "not true: It has 5,000 tasks.",
            "not true: ### Wants",
            "missing: Has books. And boxes.",
            "missing: | train | 3 |",
            "missing: | climb | Climb up. (some tasks) |",
            "missing: ### Needs",
        )
    ]
    assert readme.read_text() == text


def test_a_row_counts_where_it_stands_and_prose_however_it_is_wrapped(readme: Path) -> None:
    text, row = readme.read_text(), "| find | Find a book. |\n"
    assert row in text
    readme.write_text(text.replace("And boxes.", "And\nboxes.", 1))
    assert card(readme, "--check").code == 0
    readme.write_text(text.replace("| train | 3 |", "| train | ? |"))
    assert "README.md: missing: | train | 3 |" in card(readme, "--check").out.splitlines()
    readme.write_text(text.replace(row, "").replace("| train | 3 |\n", "| train | 3 |\n" + row))
    assert card(readme, "--check").out.splitlines() == [
        "README.md: not true: | find | Find a book. |",
        "README.md: missing: | find | Find a book. |",
    ]


def test_a_server_has_a_card_for_each_environment(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    with serving(Server([Shelf, Box])) as url:
        assert card(readme, "--env", "box", where=url).code == 0
        done = card(readme, "--env", "shelf", "--check", where=url)
        assert (done.code, done.out) == (
            1,
            "README.md: there is no card for shelf; `ors card` writes one\n",
        )
        assert card(readme, "--env", "shelf", where=url).code == 0
        for name in ("box", "shelf"):
            assert card(readme, "--env", name, "--check", where=url).code == 0
    assert readme.read_text().startswith("# box\n\n<!-- ors card: box -->\n")
    assert "| sandbox | 64 MB, with network |" in readme.read_text()
    readme.write_text(readme.read_text().replace("<!-- /ors card -->", ""))
    done = card(readme)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "<!-- /ors card --> is missing" in done.err
