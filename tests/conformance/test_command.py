import json

import pytest

from ors.conformance import requirements
from tests.support.commands import run
from tests.support.faulty_proxy import spoiled
from tests.support.protocol_faults import status

# The proxy is cut off with connections in every state; what it leaves open is no fault of what is tested.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def test_a_good_server_is_fine(several: str) -> None:
    done = run("check", several, "--only", "health", "--only", "gone", "--strict")
    assert (done.code, done.err) == (0, "")
    assert "must   4 passed, 0 failed, 0 not tried" in done.out


def test_a_target_is_served_and_checked_without_its_log() -> None:
    done = run("check", "ors.conformance.probe", "--only", "call.raises", "--only", "ping", "--verbose")
    assert (done.code, done.err) == (0, "")
    assert "✓ must   call.raises" in done.out


def test_a_fault_is_exit_code_1_and_a_missed_should_is_one_if_strict(several: str) -> None:
    with spoiled(several, status({410: 404})) as url:
        assert run("check", url, "--only", "gone").code == 1
        assert run("check", url, "--only", "ping").code == 0
        assert run("check", url, "--only", "ping", "--strict").code == 1


def test_a_report_is_json_for_programs(several: str) -> None:
    done = run("check", several, "--only", "health", "--json")
    assert done.json["counts"]["must"] == {"passed": 1, "failed": 0, "not tried": 0}


def test_requirements_are_listed_without_a_server() -> None:
    listed = run("check", "--list", "--json").json
    assert {"id", "level", "text", "page", "section", "chapter"} == set(listed[0])
    lines = run("check", "--list").out.splitlines()
    assert len(lines) == len(listed)
    assert [line.split()[1] for line in lines] == list(requirements())


def test_used_wrongly_and_not_reached_have_codes_of_their_own(several: str) -> None:
    assert run("check").code == 2
    assert run("check", several, "--only", "nonsense").code == 2
    assert run("check", several, "--env", "nonsense").code == 2
    assert run("check", "http://127.0.0.1:9").code == 3
    assert run("check", "no_such_module.at_all").code == 3


def test_json_has_every_result_with_its_source(several: str) -> None:
    done = run("check", several, "--only", "delete", "--json")
    given = json.loads(done.out)
    assert {result["id"] for result in given["results"]} >= {"delete.ok", "delete.hanging-teardown"}
    assert all(result["page"] and result["section"] for result in given["results"])
