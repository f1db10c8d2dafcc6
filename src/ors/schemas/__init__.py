"""JSON Schema, as far as the inputs of tools need it.

Public, since guests (the command line, the examinations, adapters) use public names only. Nothing of it is
protocol: the conformance suite may use it.
"""

from ors.schemas._problems import problems
from ors.schemas._samples import Inputs, emptiest, needs_choice, sample
from ors.schemas._structure import TYPES, flattened

__all__ = ["TYPES", "Inputs", "emptiest", "flattened", "needs_choice", "problems", "sample"]
