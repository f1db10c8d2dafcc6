import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ors import Environment, Limits, Server, TextBlock, ToolOutput, tool
from ors.conformance import Times, Unreachable, as_json, as_text, check, requirements
from ors.conformance.checks import all_checks
from ors.conformance.probe import Probe
from ors.types import Blocks, JSONObject
from tests.cli.targets.test_connect import answering
from tests.support.faulty_proxy import Ask, Fault, Request, Response, spoiled
from tests.support.live_server import serving

# The proxy is cut off with connections in every state; what it leaves open is no fault of what is tested.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


SLOW = [check.id for check in all_checks() if "slow" in check.needs]
HURRIED = Times(ping=0.5, kept=7, idle=4, teardown=1, slack=6)


def test_every_requirement_has_one_check_and_every_check_a_requirement() -> None:
    assert Counter(check.id for check in all_checks()) == Counter(list(requirements()))


def test_conformance_shares_no_code_with_what_it_checks() -> None:
    import ors.conformance

    for path in Path(ors.conformance.__file__).parent.rglob("*.py"):
        imported = [
            line for line in path.read_text().splitlines() if line.startswith(("import ors", "from ors"))
        ]
        others = [line for line in imported if not line.startswith("from ors.conformance")]
        if path.name == "probe.py":
            assert len(others) == 1  # the line to change for another package
        else:
            assert all(line.startswith("from ors.schemas import") for line in others), (path, others)


def test_the_suite_loads_nothing_of_server_or_client() -> None:
    code = (
        "import sys, ors.conformance.suite\nfrom ors.conformance.checks import all_checks\nall_checks()\n"
        "print([m for m in sys.modules if m.startswith(('ors.client', 'ors.server', 'ors._p', 'ors._s'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_our_server_with_several_environments_passes(several: str) -> None:
    report = check(several)
    assert [(r.requirement.id, r.reason, r.seen) for r in report.of("failed")] == []
    left = {r.requirement.id: r.reason for r in report.of("not tried") if r.reason != "slow"}
    assert set(left) == {"http.single-redirect", "http.single-redirect-308"}


def test_our_server_with_one_environment_passes(single: str) -> None:
    report = check(single)
    assert [(r.requirement.id, r.reason, r.seen) for r in report.of("failed")] == []
    assert {"http.single-redirect", "http.single-redirect-308"} <= {
        r.requirement.id for r in report.of("passed")
    }


def _limits(**changed: Any) -> Limits:
    times: dict[str, Any] = {"ping_seconds": 0.5, "kept_seconds": 7, "idle_seconds": 4, "teardown_seconds": 1}
    return Limits(**{**times, **changed})


@pytest.mark.long
@pytest.mark.parametrize("expiry", [True, False])
@pytest.mark.untraced
def test_our_server_passes_the_slow_checks(expiry: bool) -> None:
    chosen = [id for id in SLOW if id.startswith("expiry.") is expiry]
    limits = _limits() if expiry else _limits(idle_seconds=900.0)
    with serving(Server([Probe], limits=limits)) as url:
        report = check(url, slow=True, only=chosen, times=HURRIED)
    assert {r.requirement.id: (r.reason, r.seen) for r in report.results if r.outcome != "passed"} == {}
    assert len(report.results) == len(chosen) > 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "breaks"),
    [
        ({"ping_seconds": 1000.0}, "call.pings"),
        ({"kept_seconds": 0.1, "idle_seconds": 900.0}, "rejoin.kept"),
        ({"kept_seconds": 1000.0, "idle_seconds": 900.0}, "rejoin.expired"),
        ({"idle_seconds": 1000.0}, "expiry.idle expiry.gone"),
        ({"teardown_seconds": 1000.0}, "delete.hanging-teardown"),
    ],
)
def test_wrong_times_are_found(changed: Mapping[str, float], breaks: str) -> None:
    with serving(Server([Probe], limits=_limits(**changed))) as url:
        report = check(url, slow=True, only=breaks.split(), times=HURRIED)
    assert [(r.requirement.id, r.reason) for r in report.results if r.outcome != "failed"] == []


def _dies_early() -> Fault:
    """Forgets sessions when they are asked for the second time."""
    asked: Counter[str] = Counter()

    async def fault(request: Request, ask: Ask) -> Response | None:
        if request.action not in ("ping", "prompt", "call"):
            return None
        asked[request.sid] += 1
        if asked[request.sid] == 1:
            return None
        return Response(410, {"content-type": "application/json"}, b'{"detail": "gone"}')

    return fault


def _cuts_streams(request: Request, ask: Ask) -> Any:
    async def fault() -> Response | None:
        if request.tool != "slow":
            return None
        answer = await ask(request)
        return Response(answer.status, answer.headers, answer.body[: answer.body.index(b"\n\n") + 2])

    return fault()


@pytest.mark.long
def test_sessions_that_die_early_are_found(several: str) -> None:
    breaks = ["expiry.not-before", "expiry.ping", "expiry.any-request", "expiry.running-call"]
    hurried = Times(ping=0.1, kept=0.1, idle=0.4, slack=0.1)
    with spoiled(several, _dies_early()) as url:
        report = check(url, slow=True, only=breaks, times=hurried)
    assert [(r.requirement.id, r.reason) for r in report.results if r.outcome != "failed"] == []


def test_streams_that_are_cut_are_found(several: str) -> None:
    with spoiled(several, _cuts_streams) as url:
        report = check(url, slow=True, only=["call.long"], times=Times(kept=0.1))
    assert [result.outcome for result in report.results] == ["failed"]


class Plain(Environment):
    """Somebody's environment."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"n": n} for n in range(3)]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="guess")]

    @tool
    def guess(self, number: int) -> ToolOutput:
        """Guesses."""
        return ToolOutput(blocks=[TextBlock(text=str(number))], reward=0.0)


def test_what_cannot_be_told_without_the_probe_is_not_tried_and_not_passed() -> None:
    with serving(Server([Plain])) as url:
        report = check(url)
    assert report.of("failed") == []
    assert not report.probed
    deep = {check.id for check in all_checks() if {"probe", "probe_indexed"} & set(check.needs)}
    assert deep <= {result.requirement.id for result in report.of("not tried")}
    assert len(report.of("passed")) > 80
    shown = as_text(report)
    assert "needs the probe environment (ors serve ors.conformance.probe): Discovery 2, " in shown
    assert "slow (--slow tries them): " in shown
    assert "create.answers-first" not in shown
    assert "create.answers-first" in as_text(report, verbose=True)


def test_an_environment_called_probe_with_other_tools_is_not_the_probe() -> None:
    with serving(Server([type("Probe", (Plain,), {})])) as url:
        report = check(url, only=["create.split-index"])
    assert [result.outcome for result in report.results] == ["passed"]


def test_what_is_no_server_of_the_standard_is_told_at_once() -> None:
    with answering(404, b"<html>not here") as url, pytest.raises(Unreachable, match="neither /health nor"):
        check(url)


def test_where_nobody_listens_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        check("http://127.0.0.1:9", patience=2)


def test_an_unknown_requirement_is_refused(several: str) -> None:
    with pytest.raises(ValueError, match="no requirement is called 'nonsense'"):
        check(several, only=["nonsense"])


def test_an_unknown_environment_is_refused(several: str) -> None:
    with pytest.raises(ValueError, match="no environment 'nonsense'"):
        check(several, environment="nonsense")


async def _unwell(request: Request, ask: Ask) -> Response | None:
    if request.action != "health":
        return None
    return Response(200, {"content-type": "application/json"}, b'{"status": "<unwell>\x1b[0m"}')


def test_reports_show_the_offending_bytes(several: str) -> None:
    with spoiled(several, _unwell) as url:
        report = check(url, only=["health", "ping", "expiry"])
    written = as_text(report)
    assert "✗ must   health.ok" in written
    assert "<unwell>\\\\x1b" in written or "<unwell>\\x1b" in written
    assert "\x1b" not in written
    given = json.loads(as_json(report))
    assert given["conforms"] is False
    assert [r["id"] for r in given["results"] if r["outcome"] == "failed"] == ["health.ok"]
