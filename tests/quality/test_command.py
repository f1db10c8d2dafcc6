import os
import re
import signal
from pathlib import Path

import pytest

from ors import Server
from tests.support import faulty_environments as park
from tests.support.commands import Terminal, run, running
from tests.support.live_server import serving
from tests.support.unending_environment import PROCESSES
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

PARK = Path(park.__file__)
QUICK = ("--limit", "2", "--episodes", "20")


def test_a_clean_target_is_fine() -> None:
    done = run("test", f"{PARK}:Clean", *QUICK)
    assert (done.code, done.out.splitlines()[0]) == (0, "clean: no problems found")


def test_authors_code_finds_the_main_thread() -> None:
    done = run("test", f"{PARK}:Alarmed", *QUICK)
    assert (done.code, done.out.splitlines()[0]) == (0, "alarmed: no problems found")


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--strict",), 1)])
def test_warnings_count_only_if_strict(words: tuple[str, ...], code: int) -> None:
    done = run("test", f"{PARK}:Exposed", *QUICK, *words)
    assert done.code == code
    assert "! exposed: task listings show 'gold_answer'" in done.out


def test_a_fault_is_exit_code_1_and_json_says_which() -> None:
    done = run("test", f"{PARK}:Silent", *QUICK, "--json")
    assert done.code == 1
    (report,) = done.json
    assert report["fit"] is False
    assert [finding["id"] for finding in report["findings"]] == ["prompt"]


def test_a_server_is_tested_by_its_url() -> None:
    with serving(Server([park.Clean])) as url:
        done = run("test", url, *QUICK)
    assert done.code == 0
    assert "not tried: memory (needs a TARGET)" in done.out


def test_what_takes_longer_says_what_it_is_at() -> None:
    done = run("test", f"{PARK}:Slow", *QUICK)
    assert (done.code, done.out.splitlines()[0]) == (0, "slow: no problems found")
    assert "slow: leftovers and memory" in done.err.splitlines()


def test_an_interruption_ends_it_without_a_report() -> None:
    with running("test", f"{PARK}:Slow", "--episodes", "1000") as testing:
        testing.errors("slow: ")
        done = testing.stop(signal.SIGINT)
    assert (done.code, done.out) == (130, "")
    *steps, last = done.err.splitlines()
    assert all(re.fullmatch("slow: [a-z0-9 ]+", line) for line in steps), done.err
    assert last == "Interrupted."


def test_used_wrongly_and_not_reached_have_codes_of_their_own() -> None:
    assert run("test").code == 2
    assert run("test", f"{PARK}:Clean", "--env", "nonsense").code == 2
    assert run("test", "http://127.0.0.1:9").code == 3
    assert run("test", f"{PARK}:Nobody").code == 3


@pytest.mark.long
def test_an_environment_that_prints_is_tested_like_any_other() -> None:
    done = run("test", "tests.support.noisy_environment", *QUICK)
    assert "noisy: no problems found" in done.out
    assert done.code == 0


@pytest.mark.long
def test_nothing_is_left_when_the_terminal_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "processes"
    monkeypatch.setenv(PROCESSES, str(noted))
    noted.touch()
    terminal = Terminal("test", "tests.support.unending_environment", "--episodes", "1000")

    def processes() -> set[int]:
        return {int(line) for line in noted.read_text().split()}

    wait_until(lambda: len(processes()) > 2, "the command, the server beside it and an episode run")
    assert terminal.hang_up() == 130
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in processes()), "all have ended")
