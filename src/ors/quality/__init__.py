"""Quality: tests whether an environment is fit to train on."""

from ors.quality.examination import examine
from ors.quality.findings import Finding, as_json, as_text
from ors.quality.findings import QualityReport as Report
from ors.quality.subject import ExaminationPlan as Plan

__all__ = ["Finding", "Plan", "Report", "as_json", "as_text", "examine"]
