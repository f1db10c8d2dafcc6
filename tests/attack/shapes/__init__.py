"""Every HTTP shape that is tried, with the outcome that must hold on every front end."""

from tests.attack.shapes.access import ACCESS
from tests.attack.shapes.bodies import BODIES
from tests.attack.shapes.fields import FIELDS
from tests.attack.shapes.lines import LINES
from tests.attack.shapes.requests import REQUESTS
from tests.attack.shapes.shape import LAST, SID, Shape

__all__ = ["ACCESS", "LAST", "OPEN", "SID", "Shape"]

OPEN = (*LINES, *FIELDS, *BODIES, *REQUESTS)
"""For front ends without keys; those of `ACCESS` are for front ends with one."""
