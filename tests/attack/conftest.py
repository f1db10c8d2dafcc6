"""How much the attacks try (`ORS_ATTACK=1` is the long form, `make attack`), and the report of it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.scale import LONG, scaled

SEED = int(os.environ.get("ORS_ATTACK_SEED", "13"))
LONG_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is tried."""

    seed: int = SEED

    def of(self, short: int, long: int) -> int:
        """So many in `make test`, or in `make attack`."""
        return scaled(short, long)


Tally = Callable[[str, str], None]


@pytest.fixture(scope="session")
def scale() -> Scale:
    return Scale()


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Takes a line for the report: what was tried, and what came of it."""
    return lambda tried, came: record_property("attack", (tried, came))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        if LONG:
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))
    if LONG:
        return
    apart = [item for item in here if item.get_closest_marker("attack")]
    if apart:
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if item not in apart]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    lines = [
        (value, report.outcome)
        for report in reports
        for name, value in getattr(report, "user_properties", [])
        if name == "attack" and getattr(report, "when", "") == "call"
    ]
    if lines:
        terminalreporter.section(f"attacks, {'long' if LONG else 'short'} form, seed {SEED}")
        for (tried, came), outcome in lines:
            terminalreporter.write_line(f"| {tried} | {came} | {outcome} |")
