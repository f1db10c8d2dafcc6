"""Files that an environment makes are seen, wherever they are and however they are made."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ors.quality.leftovers import _target, files_made, still_there

pytestmark = pytest.mark.long

WRITE = os.O_WRONLY | os.O_CREAT


def test_files_are_seen_however_they_are_made(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("before")
    with files_made() as made:
        (tmp_path / "written").write_text("x")
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to("nowhere")
        (tmp_path / "written").rename(tmp_path / "renamed")
        with closing(sqlite3.connect(tmp_path / "base")):
            pass
        (tmp_path / "there").write_text("again")
        (tmp_path / "there").read_text()
    (tmp_path / "late").write_text("x")
    names = {"written", "folder", "link", "renamed", "base"}
    assert {Path(path).name for path in made if path.startswith(str(tmp_path))} == names
    left = {Path(path).name for path in still_there(made, tmp_path / "elsewhere")}
    assert left >= names - {"written"}
    assert "written" not in left
    assert not [path for path in still_there(made, tmp_path) if path.startswith(str(tmp_path))]


# Python runs audit hooks untraced, so that coverage sees these lines only when they are called directly.
@pytest.mark.parametrize(
    ("event", "given", "path"),
    [
        ("open", ("/a/b", "w", WRITE), "/a/b"),
        ("open", (b"/a/b", None, WRITE), "/a/b"),
        ("open", (Path("/a/../b"), None, WRITE), "/b"),
        ("open", ("/a/b", "r", os.O_RDONLY), None),
        ("open", ("/a/b", "r", None), None),
        ("open", (3, "w", WRITE), None),
        ("os.mkdir", ("/a", 0o777, -1), "/a"),
        ("os.rename", ("/a", "/b", -1, -1), "/b"),
        ("os.remove", ("/a", -1), None),
    ],
)
def test_the_path_that_is_written_to_is_found(event: str, given: tuple[Any, ...], path: str | None) -> None:
    assert _target(event, given) == path
