import pytest

from ors.conformance import check
from ors.conformance.checks import all_checks
from tests.support.faulty_proxy import spoiled
from tests.support.planted_faults import PLANTED

# The proxy is cut off with connections in every state; what it leaves open is no fault of what is tested.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_by_its_checks(name: str, several: str, single: str) -> None:
    planted = PLANTED[name]
    with spoiled(single if planted.single else several, planted.fault) as url:
        report = check(url, only=planted.breaks, patience=4)
    assert {r.requirement.id: (r.outcome, r.reason) for r in report.results if r.outcome != "failed"} == {}
    assert not any("could not be understood" in result.reason for result in report.results)


def test_every_check_that_is_not_slow_has_a_fault_that_it_finds() -> None:
    found = {id for planted in PLANTED.values() for id in planted.breaks}
    assert {check.id for check in all_checks() if "slow" not in check.needs} - found == set()


def test_nothing_fails_through_a_proxy_without_a_fault(several: str) -> None:
    with spoiled(several, None) as url:
        report = check(url)
    assert [(r.requirement.id, r.reason, r.seen) for r in report.of("failed")] == []
