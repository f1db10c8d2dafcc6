"""Quality: whether an environment is fit to train on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ors.quality.examination import examine
    from ors.quality.findings import Finding, as_json, as_text
    from ors.quality.findings import QualityReport as Report
    from ors.quality.subject import TestPlan as Plan

__all__ = ["Finding", "Plan", "Report", "as_json", "as_text", "examine"]

_HOMES = {
    "Plan": ("subject", "TestPlan"),
    "Report": ("findings", "QualityReport"),
    "examine": ("examination", "examine"),
}


def __getattr__(name: str) -> Any:
    # On demand: the conformance suite makes inputs with this package, and must not load a client by it.
    if name not in __all__:
        raise AttributeError(f"module 'ors.quality' has no attribute {name!r}")
    module, own = _HOMES.get(name, ("findings", name))
    return getattr(import_module(f"ors.quality.{module}"), own)
