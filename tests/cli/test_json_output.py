"""With --json, standard output is JSON, whatever an environment prints."""

import json
from pathlib import Path

import pytest

from tests.support.commands import run, running

NOISY = "tests.support.noisy_environment"
QUICK = ("--limit", "1", "--repeat", "1", "--episodes", "20")
EVAL = ("eval", NOISY, "--model", "gold", "--out")


@pytest.mark.parametrize(
    "words",
    [
        ("call", NOISY, "submit", "answer=1"),
        pytest.param(("list", NOISY), marks=pytest.mark.long),
        pytest.param(("tasks", NOISY), marks=pytest.mark.long),
        pytest.param(("tools", NOISY, "--index", "0"), marks=pytest.mark.long),
        pytest.param(("prompt", NOISY), marks=pytest.mark.long),
        pytest.param(("play", NOISY), marks=pytest.mark.long),
        pytest.param(("check", NOISY, "--only", "health"), marks=pytest.mark.long),
        pytest.param(("test", NOISY, *QUICK), marks=pytest.mark.long),
        pytest.param(("bench", NOISY, "--seconds", "0.5"), marks=pytest.mark.long),
        pytest.param(EVAL, marks=pytest.mark.long),
    ],
    ids=lambda words: words[0],
)
def test_what_an_environment_prints_goes_to_standard_error(words: tuple[str, ...], tmp_path: Path) -> None:
    folder = (str(tmp_path / "run"),) if words is EVAL else ()
    done = run(*words, *folder, "--json", stdin="submit 1\n")
    assert done.code == 0, done.err[-500:]
    json.loads(done.out)
    assert "printed by an import" in done.err
    assert "written by an import" in done.err


@pytest.mark.long
@pytest.mark.parametrize("how", [(), ("--workers", "1"), ("--reload",)])
def test_a_server_announces_itself_in_json_alone(how: tuple[str, ...]) -> None:
    with running("serve", NOISY, "--port", "0", "--json", *how) as server:
        assert server.process.stdout is not None
        assert json.loads(server.process.stdout.readline())["environments"][0]["name"] == "noisy"
        assert server.stop().out == ""
