"""`ors bench`: what it measures, and when it complains."""

from pathlib import Path

import pytest

from ors.cli.commands.bench import percentile
from tests.support.commands import Terminal, run

pytestmark = pytest.mark.long

FAST = ["--seconds", "0.5", "--concurrency", "2"]


def test_a_server_is_measured(url: str) -> None:
    done = run("bench", url, "--tool", "submit", "--input", '{"answer": 3}', *FAST, "--json")
    assert done.code == 0, done.out
    found = done.json
    assert found["calls"] == found["episodes"] > 0
    assert found["errors"] == {}
    assert found["calls_per_second"] == pytest.approx(found["calls"] / found["seconds"])
    assert 0 < found["call_p50_ms"] <= found["call_p99_ms"] <= found["call_max_ms"]


def test_the_figures_of_a_target_are_printed(park: str) -> None:
    done = run("bench", park, "--tool", "special", "--calls", "3", *FAST)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "special {}: 2 concurrent episodes"
    assert lines[2].split() == [park]
    assert lines[3].startswith("calls per second")
    assert lines[-1].split() == ["errors", "0"]


def test_errors_are_counted_by_kind_and_make_it_a_fault(url: str) -> None:
    done = run("bench", url, "--tool", "fail", *FAST, "--json")
    assert done.code == 1
    assert list(done.json["errors"]) == ["ToolFailed: Tool execution failed: it broke"]
    shown = run("bench", url, "--tool", "refuse", *FAST)
    assert shown.code == 1
    assert "× ToolCallError: not today" in shown.err


def test_what_a_target_raises_is_counted_and_not_logged(park: str) -> None:
    done = run("bench", park, "--tool", "fail", *FAST)
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert "× ToolFailed: Tool execution failed: it broke" in line


def test_without_a_tool_it_takes_one_that_needs_no_input(url: str) -> None:
    assert run("bench", url, *FAST).out.startswith("fail {}")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--tool", "nope"], 2, "There is no tool 'nope'"),
        (["--tool", "submit", "--input", '{"x": 1}'], 2, "submit has no parameter 'x'"),
        (["--env", "nope"], 2, "There is no environment 'nope'"),
        (["--split", "nope"], 2, "Invalid split"),
    ],
)
def test_what_cannot_be_measured_is_told(url: str, words: list[str], code: int, said: str) -> None:
    done = run("bench", url, *FAST, *words)
    assert done.code == code
    assert said in done.err


def test_a_terminal_is_told_how_long_it_takes(url: str, tmp_path: Path) -> None:
    bench = Terminal("bench", url, "--tool", "special", "--seconds", "1", cwd=tmp_path)
    bench.until("Measuring for 1 s")
    code, rest = bench.end()
    assert code == 0
    assert "calls per second" in rest


def test_an_interrupted_measurement_still_gives_a_summary(url: str, tmp_path: Path) -> None:
    bench = Terminal("bench", url, "--tool", "special", "--seconds", "600", cwd=tmp_path)
    bench.until("Measuring for 600 s")
    bench.type("\x03")
    code, rest = bench.end()
    assert code == 0
    assert "calls per second" in rest


def test_percentiles_are_right() -> None:
    latencies = [n / 1000 for n in range(1, 1001)]
    for percent in (50, 90, 99):
        assert percentile(latencies, percent) == pytest.approx(percent * 10)
    assert percentile(latencies, 100) == pytest.approx(1000)
    assert percentile([], 50) is None
