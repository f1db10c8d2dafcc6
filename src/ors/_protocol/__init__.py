"""The Open Reward Standard: endpoints, headers, the events of a call, ids. Defined only here.

Every name of the modules below without an underscore is a name of this package.
"""

from ors._protocol.call_events import *
from ors._protocol.endpoints import *
