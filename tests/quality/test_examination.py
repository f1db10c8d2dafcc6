import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ors.quality
from examples.__main__ import EXAMPLES
from ors import Environment, Server
from ors.quality import Plan, Report, as_json, as_text, examine
from ors.types import JSONObject, ListToolsOutput, ToolSpec
from tests.support import faulty_environments as park
from tests.support import intermittent_environments as marsh
from tests.support.faulty_proxy import Fault, spoiled
from tests.support.live_server import serving
from tests.support.protocol_faults import refuses

pytestmark = pytest.mark.long

PLAN = Plan(sample=3, episodes=30)


def examined(cls: type[Environment], plan: Plan = PLAN) -> Report:
    (report,) = examine(classes={cls.name().lower(): cls}, plan=plan)
    return report


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    yield
    park.STOP.set()
    while park.Processes.started:
        process = park.Processes.started.pop()
        process.kill()
        process.communicate()
    park.STOP.clear()


def test_a_clean_environment_has_no_findings() -> None:
    report = examined(park.Clean)
    assert report.findings == []
    assert report.not_tried == {}
    assert report.figures["tasks"] == {"train": 5, "test": 2}
    assert (report.figures["do-nothing earns"], report.figures["gold earns"]) == (0, 1)


@pytest.mark.parametrize("cls", park.FAULTY, ids=lambda cls: cls.__name__)
def test_a_planted_fault_is_found_and_nothing_else(cls: type[Environment]) -> None:
    report = examined(cls)
    assert {finding.id for finding in report.findings} == park.FAULTY[cls], as_text(report)
    assert all(finding.fix for finding in report.findings)


def test_a_tool_that_refuses_in_many_words_is_told_once() -> None:
    (finding,) = examined(park.Refusing).findings
    assert finding.text.startswith("pick refuses inputs that fit its schema: ")


class Locked(park.Clean):
    code: ClassVar[JSONObject] = {"type": "string", "pattern": "^[0-9]-[0-9]$"}

    def list_task_tools(self) -> ListToolsOutput:
        schema: JSONObject = {"type": "object", "properties": {"code": self.code}, "required": ["code"]}
        return ListToolsOutput(tools=[ToolSpec(name="unlock", description="Unlock.", input_schema=schema)])

    async def _call_tool(self, name: str, input: JSONObject) -> Any:
        if name == "unlock":
            raise ValueError("the lock broke")
        return await super()._call_tool(name, input)


class LockedWithExample(Locked):
    code: ClassVar[JSONObject] = {**Locked.code, "examples": ["1-2"]}


@pytest.mark.parametrize(("cls", "found"), [(Locked, set()), (LockedWithExample, {"raises"})])
def test_a_tool_is_judged_only_by_inputs_that_match_its_pattern(
    cls: type[Environment], found: set[str]
) -> None:
    assert {finding.id for finding in examined(cls).findings} == found


@pytest.mark.parametrize(
    ("fault", "id"),
    [
        (refuses(lambda r: r.action == "splits", 500), "splits"),
        (refuses(lambda r: r.action == "tools", 500), "tools"),
        (refuses(lambda r: r.action == "call", 410), "episode"),
    ],
)
def test_what_a_server_does_wrong_is_found(fault: Fault, id: str) -> None:
    with serving(Server([park.Clean])) as url, spoiled(url, fault) as spoiled_url:
        (report,) = examine(url=spoiled_url, plan=PLAN)
    assert id in {finding.id for finding in report.findings}


def test_a_server_is_examined_by_its_url_and_what_that_cannot_show_is_not_tried() -> None:
    with serving(Server([park.Clean, park.Silent])) as url:
        reports = examine(url=url, plan=PLAN)
    assert [(r.environment, [f.id for f in r.findings]) for r in reports] == [
        ("clean", []),
        ("silent", ["prompt"]),
    ]
    assert set(reports[0].not_tried) == {
        "gold solution",
        "teardown",
        "threads, processes and files",
        "memory",
    }


def test_one_environment_can_be_chosen() -> None:
    with serving(Server([park.Clean, park.Silent])) as url:
        assert [report.environment for report in examine(url=url, environment="Silent", plan=PLAN)] == [
            "silent"
        ]
        with pytest.raises(ValueError, match="no environment 'nonsense'"):
            examine(url=url, environment="nonsense")


def test_the_same_finding_of_several_tasks_is_one_line() -> None:
    report = examined(park.Generous)
    (finding,) = report.findings
    assert len(finding.where) == 5
    lines = as_text(report).splitlines()
    assert lines[0] == "generous: 1 fault"
    assert re.fullmatch(r"  ✗ do-nothing: calls with empty inputs earn 1 \(train .* and 4 more\)", lines[1])
    assert lines[2].startswith("      Give reward for")


def test_reports_are_json_too() -> None:
    (given,) = json.loads(as_json([examined(park.Exposed)]))
    assert given["fit"] is True
    assert given["findings"][0]["id"] == "exposed"
    assert given["findings"][0]["level"] == "warning"


def test_an_environments_class_is_as_it_was_after_the_examination() -> None:
    before = dict(vars(park.Crowded)), dict(vars(park.Clean))
    examined(park.Crowded)
    assert set(vars(park.Crowded)) - {"_toolbox"} == set(before[0]) - {"_toolbox"}
    assert park.Crowded.teardown is before[0]["teardown"]
    assert "teardown" not in vars(park.Clean)


def test_a_report_never_steers_the_terminal() -> None:
    report = Report("x")
    report.found("id", "red \x1b[31m", fix="fix")
    assert "\x1b" not in as_text(report)


def test_every_finding_is_documented_and_planted() -> None:
    source = "".join(path.read_text() for path in Path(ors.quality.__file__).parent.glob("*.py"))
    ids = set(re.findall(r'found\(\s*"([a-z-]+)"', source)) | {"threads", "processes", "files"}
    told = (Path(__file__).parents[2] / "docs" / "guides" / "testing.md").read_text()
    assert {id for id in ids if f"`{id}`" not in told} == set()
    planted = {id for found in (park.FAULTY | marsh.HIDDEN).values() for id in found}
    planted |= {"splits", "tools", "episode"} | {"forged-grade"}  # the last in test_cheats.py
    assert ids - planted == {"format"}  # every valid schema can be converted


@pytest.mark.parametrize("cls", EXAMPLES, ids=lambda cls: cls.__name__)
def test_nothing_is_invented_for_the_examples(cls: type[Environment]) -> None:
    report = examined(cls, Plan(sample=3, episodes=20))
    # On a busy machine, even the start of a process holds the loop long enough to be told.
    assert {finding.id for finding in report.findings} <= {"holds-loop"}, as_text(report)
