"""The page on running a server says what the server does."""

import dataclasses
import re
from pathlib import Path

import pytest

from ors import Limits
from ors.server.admin.metrics import METRICS
from tests.support.raw_http import Raw

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "operating.md").read_text(encoding="utf-8")


def test_every_limit_is_in_the_table_with_its_default() -> None:
    table = PAGE[PAGE.index("| limit |") : PAGE.index("An environment may set")]
    told = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", table, re.MULTILINE))
    assert told == {
        field.name: "none" if field.default is None else str(field.default)
        for field in dataclasses.fields(Limits)
    }


def test_every_limit_that_an_environment_may_set_is_named() -> None:
    from ors.server.episodes.class_checks import OWN_LIMITS

    told = re.search(r"^An environment may set (.*) for itself", PAGE, re.MULTILINE)
    assert told is not None
    assert sorted(re.findall(r"`(\w+)`", told[1])) == sorted(OWN_LIMITS)


def test_the_metrics_to_watch_exist() -> None:
    table = PAGE[PAGE.index("| metric |") : PAGE.index("The mean reward of")]
    told = set(re.findall(r"`(ors_\w+)", table))
    assert len(told) > 8
    assert told <= {row.name for row in METRICS} | {f"{row.name}_total" for row in METRICS}


@pytest.mark.parametrize("path", ["/-/health/live", "/-/health/ready", "/-/metrics", "/-/sessions"])
def test_every_page_is_there(raw: Raw, path: str) -> None:
    assert f"`{path}`" in PAGE
    assert raw.get(path).status == 200
