"""The inspector: a web page to look at a server or at recorded runs, and a local server of that page."""

from ors.inspector.proxy import InspectorProxy
from ors.inspector.runs_api import RunsApi

__all__ = ["InspectorProxy", "RunsApi"]
