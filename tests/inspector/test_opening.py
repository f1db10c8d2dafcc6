"""The page that `ors view` and `ors inspect` open in a browser, and how its token gets there."""

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.browser import Page
from tests.support.commands import running
from tests.support.episode_records import episode
from tests.support.recorded_runs import write_run

pytestmark = pytest.mark.long

QUIZ = Path(__file__).parents[1] / "support" / "eval_environments.py"
BROWSER = """\
#!/bin/sh
# Tells what it opens, and stays until it may go.
echo "$1 $$" > "{told}"
timeout 60 cat "{gate}"
"""


def command_lines() -> str:
    """The command lines of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue  # it has ended
    return b"\n".join(found).decode(errors="replace")


@pytest.mark.parametrize("command", ["view", "inspect"])
def test_a_browser_gets_the_token_from_a_file_of_the_user_and_not_in_its_command_line(
    command: str, tmp_path: Path, page: Page
) -> None:
    told, gate = tmp_path / "told", tmp_path / "gate"
    os.mkfifo(told)
    os.mkfifo(gate)
    browser = tmp_path / "browser"
    browser.write_text(BROWSER.format(told=told, gate=gate))
    browser.chmod(0o700)
    write_run(tmp_path / "runs" / "run", [episode(0)])
    (tmp_path / "temporary").mkdir()
    what = tmp_path / "runs" if command == "view" else QUIZ
    env = {"BROWSER": f"{browser} %s &", "TMPDIR": str(tmp_path / "temporary")}
    with running(command, str(what), "--open", env=env) as shown:
        printed = shown.line(r"on (http://\S+)")[1]
        token = printed.partition("?token=")[2]
        opened, pid = told.read_text().split()
        assert len(token) > 30
        assert opened in Path(f"/proc/{pid}/cmdline").read_text()
        assert token not in command_lines()
        file = Path(unquote(urlsplit(opened).path))
        assert token in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        page.visit(opened)
        assert page.driver.current_url.startswith(printed.partition("?")[0])
        page.find("main", "run" if command == "view" else "quiz")
        gate.write_text("\n")
        assert shown.stop().code == 0
    assert list((tmp_path / "temporary").iterdir()) == []
