"""Conformance: checks any server against the Open Reward Standard.

`check(url)` runs the suite. Some checks need the environments of `ors.conformance.probe` on the server.
"""

from ors.conformance.requirements import Requirement, requirements
from ors.conformance.requirements import ServerUnreachable as Unreachable
from ors.conformance.subject import Times
from ors.conformance.suite import CheckResult as Result
from ors.conformance.suite import ConformanceReport as Report
from ors.conformance.suite import as_json, as_text, check

__all__ = [
    "Report",
    "Requirement",
    "Result",
    "Times",
    "Unreachable",
    "as_json",
    "as_text",
    "check",
    "requirements",
]
