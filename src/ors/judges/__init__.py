"""Rewards from a model that judges by a rubric, and graders for answers that a rule can check."""

from ors.errors import JudgeFailed
from ors.judges.graders import contains, exact, json_schema, math_equal, multiple_choice, numeric, regex
from ors.judges.judge import Judge, Verdict
from ors.judges.rubric import Criterion

__all__ = [
    "Criterion",
    "Judge",
    "JudgeFailed",
    "Verdict",
    "contains",
    "exact",
    "json_schema",
    "math_equal",
    "multiple_choice",
    "numeric",
    "regex",
]
