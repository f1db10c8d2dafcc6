"""The inspector: a web page to look at a server or at recorded runs, and a local server of that page."""

from ors.inspector.run_folder import RunFolder
from ors.inspector.runs_api import RunsApi
from ors.inspector.standin import StandIn

__all__ = ["RunFolder", "RunsApi", "StandIn"]
