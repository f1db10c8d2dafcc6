"""The rules of playing: one description for Python, the command line and runs."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_type_hints

from ors.rollouts import PlayArguments, Rules
from tests.support.copied_tree import changed, copied, python

USE = """
from click.testing import CliRunner
from ors.cli.commands.eval import eval_command
from ors.cli.evaluation.plan import EvalPlan
from ors.rollouts import Rules

print(CliRunner().invoke(eval_command, ["--help"], terminal_width=200).output)
plan = EvalPlan(target="adder", environment=None, model="noop", greeting="hello")
print(plan.as_json()["greeting"], EvalPlan.from_json(plan.as_json(), "run").playing()["greeting"])
print(Rules(reward="sum", greeting="hello").greeting)
"""


def test_type_checkers_know_the_rules_as_they_are() -> None:
    assert get_type_hints(PlayArguments) == get_type_hints(Rules)
    needed = {each.name for each in fields(Rules) if each.default is each.default_factory is MISSING}
    assert PlayArguments.__required_keys__ == needed


def test_a_new_rule_is_written_once(tmp_path: Path) -> None:
    rules = copied(tmp_path) / "rollouts/episodes/rules.py"
    rule = '    greeting: str | None = None\n    """Say this first."""\n'
    changed(rules, "    nudge: str | None = None\n", f"{rule}    nudge: str | None = None\n")
    told = python(tmp_path, USE)
    assert "--greeting TEXT|@FILE" in told
    assert "Say this first." in told
    assert told.endswith("hello hello\nhello\n")
